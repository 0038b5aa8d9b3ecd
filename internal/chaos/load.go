package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/chaos/oracle"
	"github.com/rota-dev/rota/internal/check"
	"github.com/rota-dev/rota/internal/journal"
)

// load changes Websites: half of what it does is to one of them; of the rest, it updates most, deletes and creates others again
// under their names, and replaces others by new ones. Their number stays the same.
type load struct {
	client client.Client
	work   sync.WaitGroup

	mu        sync.Mutex
	random    *rand.Rand
	sites     []*site // the first one is the hot one
	next      int
	edits     int
	updates   []check.Update
	deletions []oracle.Deletion
	failures  int
}

// site is a Website. busy ones are being changed.
type site struct {
	check.Site
	busy bool
}

func newLoad(c client.Client, seed uint64) *load {
	return &load{client: c, random: rand.New(rand.NewPCG(seed, 0))}
}

// newSite returns the next Website. The caller holds the lock.
func (l *load) newSite() *site {
	l.next++
	key := types.NamespacedName{Namespace: sitesNamespace, Name: fmt.Sprintf("site-%05d", l.next-1)}
	return &site{Site: check.Site{NamespacedName: key}}
}

// fill creates Websites until there are n.
func (l *load) fill(ctx context.Context, n int) error {
	var workers sync.WaitGroup
	errs := make(chan error, 8)
	for range cap(errs) {
		workers.Go(func() {
			for {
				l.mu.Lock()
				if l.next >= n {
					l.mu.Unlock()
					return
				}
				s := l.newSite()
				l.mu.Unlock()
				if err := l.create(ctx, s); err != nil {
					errs <- fmt.Errorf("create Website %s: %w", s.Name, err)
					return
				}
				l.mu.Lock()
				l.sites = append(l.sites, s)
				l.mu.Unlock()
			}
		})
	}
	workers.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func (l *load) create(ctx context.Context, s *site) error {
	obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}, Spec: webv1.WebsiteSpec{Title: s.Name}}
	err := l.client.Create(ctx, obj)
	if apierrors.IsAlreadyExists(err) { // an answer had been lost
		err = l.client.Get(ctx, s.NamespacedName, obj)
	}
	if err != nil {
		return err
	}
	s.UID = string(obj.UID)
	l.updated(obj)
	return nil
}

// updated notes a change of a specification that was answered now.
func (l *load) updated(obj *webv1.Website) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updates = append(l.updates, check.Update{Key: client.ObjectKeyFromObject(obj), UID: string(obj.UID), Generation: obj.Generation, Commit: journal.Now()})
}

// run does rate things per second until ctx ends.
func (l *load) run(ctx context.Context, rate float64) {
	interval := time.Duration(float64(time.Second) / rate)
	for await.Sleep(ctx, interval) == nil {
		l.mu.Lock()
		s, choice := l.sites[0], 0
		if l.random.IntN(2) == 0 {
			s, choice = l.sites[l.random.IntN(len(l.sites))], l.random.IntN(10)
		}
		idle := !s.busy
		s.busy = true
		if s == l.sites[0] {
			choice = 0
		}
		l.mu.Unlock()
		if idle {
			// What it began goes on when ctx ends.
			l.work.Go(func() { l.one(context.WithoutCancel(ctx), s, choice) })
		}
	}
}

// one changes a busy Website. One that is deleted must be created again, whatever it takes.
func (l *load) one(ctx context.Context, s *site, choice int) {
	var err error
	switch {
	case choice < 6:
		err = l.update(ctx, s)
	case choice < 8:
		err = l.replace(ctx, s, false)
	default:
		err = l.replace(ctx, s, true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.busy = false
	if err != nil {
		l.failures++
	}
}

func (l *load) update(ctx context.Context, s *site) error {
	l.mu.Lock()
	l.edits++
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"content":"edit %d"}}`, l.edits))
	l.mu.Unlock()
	obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}}
	if err := l.client.Patch(ctx, obj, patch); err != nil {
		return err
	}
	l.updated(obj)
	return nil
}

// replace deletes a Website, and creates it again or another one instead.
func (l *load) replace(ctx context.Context, s *site, anew bool) error {
	begun := journal.Now()
	err := l.insist(ctx, func() error {
		return client.IgnoreNotFound(l.client.Delete(ctx, &webv1.Website{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}}))
	})
	if err != nil {
		return err
	}
	if anew {
		l.mu.Lock()
		l.deletions = append(l.deletions, oracle.Deletion{Site: s.Site, Begun: begun, Commit: journal.Now()})
		s.Site = l.newSite().Site
		l.mu.Unlock()
	}
	return l.insist(ctx, func() error { return l.create(ctx, s) })
}

// insist tries until it succeeds: the API server comes back.
func (l *load) insist(ctx context.Context, try func() error) error {
	return await.Until(ctx, 500*time.Millisecond, 2*time.Minute, func() string {
		if err := try(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// take returns what was done since it was called last.
func (l *load) take() (updates []check.Update, deletions []oracle.Deletion, failures int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	updates, deletions, failures = l.updates, l.deletions, l.failures
	l.updates, l.deletions, l.failures = nil, nil, 0
	return updates, deletions, failures
}

// hot returns the Website that has half of the load.
func (l *load) hot() check.Site {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sites[0].Site
}
