package ledger

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/resourceversion"
)

const (
	// ownPatience bounds ShowOwn: a watch takes a few milliseconds to show a write, tens of them under load.
	ownPatience = 100 * time.Millisecond
	ownPeriod   = 2 * time.Millisecond
	// ownRespite is how long reads do not wait after a wait in vain. So a watch that lags costs workers at most a tenth of
	// their time.
	ownRespite = time.Second
	// ownMany bounds the versions that are remembered. When it is reached, all are forgotten, and reads do not wait for
	// them.
	ownMany = 1000
)

// own are the versions that controllers of this member gave to objects of primary kinds, until the informers are found
// to show them. A controller waits for its own versions only: where several work on one kind, a sync that waited for
// another's write would begin the moment that write is shown, before other informers show what the other wrote along
// with it. Without a wait the sync meets the old object, as with stock informers.
type own struct {
	mu      sync.Mutex
	wrote   map[authored]string
	respite map[schema.GroupKind]time.Time // when it ends
}

// authored is an object of a primary kind as one controller wrote it.
type authored struct {
	sharding.Subject
	controller string
}

func (o *own) add(about authored, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wrote == nil || len(o.wrote) >= ownMany {
		o.wrote = map[authored]string{}
	}
	if resourceversion.Compare(o.wrote[about], version) < 0 {
		o.wrote[about] = version
	}
}

// of returns the version to wait for, or "" if there is none.
func (o *own) of(about authored) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrote[about]
}

// shown removes a version, unless a later one has replaced it.
func (o *own) shown(about authored, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wrote[about] == version {
		delete(o.wrote, about)
	}
}

// rests reports whether reads do not wait for objects of the kind now.
func (o *own) rests(kind schema.GroupKind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Before(o.respite[kind])
}

// vain notes a wait in vain.
func (o *own) vain(kind schema.GroupKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.respite == nil {
		o.respite = map[schema.GroupKind]time.Time{}
	}
	o.respite[kind] = time.Now().Add(ownRespite)
}

// ShowOwn returns when the informers of a primary kind show what the controller wrote to the object (see Write.Author),
// after 100 ms, or when ctx ends. Without it, a reconcile right after a write would find the object as it was before,
// and write it again in vain. It only saves requests; correctness does not depend on it.
func (l *Ledger) ShowOwn(ctx context.Context, kind schema.GroupKind, name types.NamespacedName, controller string) {
	about := authored{sharding.Subject{Kind: kind, Name: name}, controller}
	version := l.own.of(about)
	if version == "" {
		return
	}
	shown := func() bool {
		if !l.shows(about.Subject, version) {
			return false
		}
		l.own.shown(about, version)
		return true
	}
	if shown() || l.own.rests(kind) {
		return
	}
	patience := time.NewTimer(ownPatience)
	defer patience.Stop()
	tick := time.NewTicker(ownPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if shown() {
				return
			}
		case <-patience.C:
			if !shown() {
				l.own.vain(kind)
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// shows reports whether no informer has the object as it was before the version.
func (l *Ledger) shows(about sharding.Subject, version string) bool {
	return !slices.ContainsFunc(l.c.Caches(about.Kind), func(c Cache) bool {
		if c.Whole || c.ByOwner {
			return false
		}
		obj := c.Stored(about.Name)
		return obj != nil && resourceversion.Compare(obj.GetResourceVersion(), version) < 0
	})
}

// noteOwn notes the version that this write gave to an object of the kind.
func (w *Write) noteOwn(obj metav1.Object, version string) {
	if w.author == "" || !w.ledger.c.Roles.Sharded(w.kind) || obj.GetName() == "" {
		return
	}
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	w.ledger.own.add(authored{sharding.Subject{Kind: w.kind, Name: name}, w.author}, version)
}
