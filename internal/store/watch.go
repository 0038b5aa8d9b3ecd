package store

import (
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
)

func named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

// WatchTable implements Store.
func (k *Kubernetes) WatchTable(ctx context.Context, emit func(s member.Snapshot, listed bool)) error {
	var list corev1.ConfigMapList
	missing := func(version string) member.Snapshot {
		k.forget(configMaps)
		return member.Snapshot{Version: version}
	}
	return k.follow(ctx, feed{
		client: k.watches.core, resource: configMaps, options: named(k.opts.Name), list: &list, want: k.configMap(""),
		reset: func(version string) {
			items := list.Items
			list = corev1.ConfigMapList{}
			if len(items) == 0 {
				emit(missing(version), true)
				return
			}
			emit(k.seen(&items[0]), true)
		},
		change: func(kind watch.EventType, obj runtime.Object) {
			cm, ok := obj.(*corev1.ConfigMap)
			switch {
			case !ok:
			case kind == watch.Deleted:
				emit(missing(cm.ResourceVersion), false)
			default:
				emit(k.seen(cm), false)
			}
		},
	})
}

// WatchLeases implements Store.
func (k *Kubernetes) WatchLeases(ctx context.Context, all bool, ids []string, emit func(Leases)) error {
	if all {
		options := metav1.ListOptions{LabelSelector: labels.Set{names.LabelRota: k.opts.Name}.String()}
		return k.follow(ctx, k.leaseFeed(options, emit))
	}
	return k.watchEach(ctx, ids, emit)
}

// leaseFeed returns a feed that emits every list as Complete.
func (k *Kubernetes) leaseFeed(options metav1.ListOptions, emit func(Leases)) feed {
	list := &coordinationv1.LeaseList{}
	return feed{
		client: k.watches.leases, resource: leases, options: options, list: list, want: k.lease(""),
		reset: func(string) {
			seen := Leases{Complete: true}
			for i := range list.Items {
				if id, ok := names.Member(k.opts.Name, list.Items[i].Name); ok {
					seen.Leases = append(seen.Leases, readLease(id, &list.Items[i]))
				}
			}
			*list = coordinationv1.LeaseList{}
			emit(seen)
		},
		change: func(kind watch.EventType, obj runtime.Object) {
			lease, ok := obj.(*coordinationv1.Lease)
			if !ok {
				return
			}
			id, ok := names.Member(k.opts.Name, lease.Name)
			switch {
			case !ok:
			case kind == watch.Deleted:
				emit(Leases{Gone: []string{id}})
			default:
				emit(Leases{Leases: []member.Lease{readLease(id, lease)}})
			}
		},
	}
}

// watchEach follows each Lease in a separate goroutine and merges their reports.
func (k *Kubernetes) watchEach(ctx context.Context, ids []string, emit func(Leases)) error {
	type report struct {
		id string
		Leases
	}
	reports := make(chan report)
	var group sync.WaitGroup
	defer group.Wait()
	for _, id := range ids {
		group.Go(func() {
			_ = k.follow(ctx, k.leaseFeed(named(names.Lease(k.opts.Name, id)), func(seen Leases) {
				select {
				case reports <- report{id, seen}:
				case <-ctx.Done():
				}
			}))
		})
	}
	waiting := make(map[string]bool, len(ids))
	for _, id := range ids {
		waiting[id] = true
	}
	if len(waiting) == 0 {
		emit(Leases{Complete: true})
	}
	first := merger{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-reports:
			switch {
			case len(waiting) > 0:
				delete(waiting, r.id)
				first.add(r.Leases, r.id)
				if len(waiting) == 0 {
					emit(first.complete())
				}
			case r.Complete && len(r.Leases.Leases) == 0:
				emit(Leases{Gone: []string{r.id}})
			default:
				emit(Leases{Leases: r.Leases.Leases, Gone: r.Gone})
			}
		}
	}
}

// merger collects the first lists of several feeds.
type merger map[string]member.Lease

func (m merger) add(seen Leases, id string) {
	delete(m, id)
	for _, lease := range seen.Leases {
		m[lease.ID] = lease
	}
}

func (m merger) complete() Leases {
	out := Leases{Complete: true}
	for _, lease := range m {
		out.Leases = append(out.Leases, lease)
	}
	return out
}
