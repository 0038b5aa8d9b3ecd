package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/check"
	"github.com/rota-dev/rota/internal/journal"
)

// newSite returns the next Website. The caller holds the lock.
func (l *load) newSite() *site {
	l.next++
	key := types.NamespacedName{Namespace: sitesNamespace, Name: fmt.Sprintf("site-%05d", l.next)}
	return &site{Site: check.Site{NamespacedName: key}, number: l.next, busy: true}
}

// spec is the Website's, in its next edition: half of them are protected, and three of four have a certificate. They ask for no
// Pods: the demo's own API server runs none, and somebody's cluster shall not.
func (s *site) spec() webv1.WebsiteSpec {
	spec := webv1.WebsiteSpec{Title: "Website " + s.Name, Content: s.content(), Protected: s.number%2 == 0, Replicas: ptr.To[int32](0)}
	if s.number%4 != 0 {
		spec.SecretName = certificate(s.number % certificates)
	}
	return spec
}

// certify creates the Secrets.
func (l *load) certify(ctx context.Context) error {
	for number := range certificates {
		if err := l.client.Create(ctx, secret(number, 0)); err != nil {
			return fmt.Errorf("create secret: %w", err)
		}
	}
	return nil
}

// fill creates a number of Websites.
func (l *load) fill(ctx context.Context, objects int) error {
	todo := make(chan *site)
	errs := make(chan error, 1)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for s := range todo {
				if err := l.create(ctx, s); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for range objects {
		l.mu.Lock()
		s := l.newSite()
		l.mu.Unlock()
		todo <- s
	}
	close(todo)
	workers.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func (l *load) create(ctx context.Context, s *site) error {
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 2*time.Second) {
		obj := &webv1.Website{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
			Spec:       s.spec(),
		}
		err := l.client.Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) && await.Sleep(ctx, delay) == nil {
			continue // the finalizer of its predecessor
		}
		if err != nil {
			return fmt.Errorf("create website %s: %w", s, err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sites = append(l.sites, s)
		s.UID, s.busy = string(obj.UID), false
		return nil
	}
}

const text = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. "

func (s *site) content() string {
	s.edits++
	return fmt.Sprintf("Edition %d. %s", s.edits, text)
}

func (l *load) update(ctx context.Context, s *site) error {
	obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	patch := fmt.Appendf(nil, `{"spec":{"content":%q}}`, s.content())
	if err := l.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("update website %s: %w", s, err)
	}
	commit := journal.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.updates++
	l.updates = append(l.updates, check.Update{Key: s.NamespacedName, UID: string(obj.UID), Generation: obj.Generation, Commit: commit})
	return nil
}

// remove deletes the Website and forgets it.
func (l *load) remove(ctx context.Context, s *site) error {
	obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	if err := l.client.Delete(ctx, obj); err != nil {
		return fmt.Errorf("delete website %s: %w", s, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sites = slices.DeleteFunc(l.sites, func(o *site) bool { return o == s })
	return nil
}

func (l *load) recreate(ctx context.Context, s *site) error {
	if err := l.remove(ctx, s); err != nil {
		return err
	}
	if err := l.create(ctx, s); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.recreations++
	return nil
}

func (l *load) replace(ctx context.Context, s *site) error {
	if err := l.remove(ctx, s); err != nil {
		return err
	}
	gone := deletion{s.Site, journal.Now()}
	l.mu.Lock()
	l.deletions, l.garbage = append(l.deletions, gone), append(l.garbage, gone)
	l.counts.replacements++
	fresh := l.newSite()
	l.mu.Unlock()
	return l.create(ctx, fresh)
}
