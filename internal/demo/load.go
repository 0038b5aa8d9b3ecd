package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/demo/check"
	"github.com/rota-dev/rota/internal/demo/journal"
	"github.com/rota-dev/rota/slot"
)

// load changes Websites: it updates some, deletes and recreates others under the same name, and replaces others by new
// ones, so that a page left behind shows. The number of Websites stays the same. While slots move, half of what it
// does is to objects of those slots.
type load struct {
	client  client.Client
	objects int
	slotOf  func(types.NamespacedName) slot.Slot
	// moving are the slots on the way, aimed at by canaries.
	moving atomic.Pointer[slot.Set]
	// canaryRate is per second.
	canaryRate atomic.Int64

	work sync.WaitGroup

	mu        sync.Mutex
	random    *rand.Rand
	sites     []*site
	next      int
	updates   []check.Update
	deletions []deletion
	counts    struct{ updates, recreations, replacements, failures int }
	err       error
}

type site struct {
	key       types.NamespacedName
	protected bool
	busy      bool
	edits     int
}

// deletion is a Website deleted for good.
type deletion struct {
	key    types.NamespacedName
	commit time.Duration
}

func newLoad(c client.Client, objects int, seed uint64, slotOf func(types.NamespacedName) slot.Slot) *load {
	l := &load{client: c, objects: objects, slotOf: slotOf, random: rand.New(rand.NewPCG(seed, 0))}
	l.moving.Store(&slot.Set{})
	return l
}

// newSite returns the next Website. Half of them are protected. The caller holds the lock.
func (l *load) newSite() *site {
	l.next++
	return &site{key: types.NamespacedName{Namespace: sitesNamespace, Name: fmt.Sprintf("site-%05d", l.next)}, protected: l.next%2 == 0, busy: true}
}

// fill creates the Websites.
func (l *load) fill(ctx context.Context) error {
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
	for range l.objects {
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
	for delay := 20 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		obj := &webv1.Website{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name},
			Spec:       webv1.WebsiteSpec{Title: "Website " + s.key.Name, Content: l.content(s), Protected: s.protected},
		}
		err := l.client.Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) && wait(ctx, delay) == nil {
			continue // the finalizer of its predecessor
		}
		if err != nil {
			return fmt.Errorf("create website %s: %w", s.key, err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sites = append(l.sites, s)
		s.busy = false
		return nil
	}
}

const text = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. "

func (l *load) content(s *site) string {
	s.edits++
	return fmt.Sprintf("Edition %d. %s", s.edits, text)
}

// run works at the rate until ctx ends, and then ends what it began, in later.
func (l *load) run(ctx, later context.Context, rate float64) {
	l.work.Go(func() {
		l.tick(ctx, func() time.Duration { return time.Duration(float64(time.Second) / rate) }, func() { l.one(later) })
	})
	l.work.Go(func() {
		l.tick(ctx, func() time.Duration { return time.Second / time.Duration(max(1, l.canaryRate.Load())) }, func() { l.canary(later) })
	})
}

// tick calls do in every interval; those that are late follow at once.
func (l *load) tick(ctx context.Context, interval func() time.Duration, do func()) {
	next := time.Now()
	for wait(ctx, time.Until(next)) == nil {
		do()
		next = next.Add(interval())
		if behind := time.Now().Add(-time.Second); next.Before(behind) {
			next = behind // this machine cannot keep up
		}
	}
}

// one does one thing of the load, in the background.
func (l *load) one(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	choice := l.random.IntN(10)
	aim := slot.Set{}
	if l.random.IntN(2) == 0 {
		aim = *l.moving.Load()
	}
	s := l.pick(aim)
	if s == nil {
		return
	}
	l.work.Go(func() {
		switch {
		case choice < 6:
			l.finish(s, l.update(ctx, s))
		case choice < 8:
			l.finish(nil, l.recreate(ctx, s))
		default:
			l.finish(nil, l.replace(ctx, s))
		}
	})
}

// canary updates an object whose slot is on its way.
func (l *load) canary(ctx context.Context) {
	aim := *l.moving.Load()
	if aim.Empty() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.pick(aim); s != nil {
		l.work.Go(func() { l.finish(s, l.update(ctx, s)) })
	}
}

// pick returns an idle Website, of the slots if there are any, and makes it busy. The caller holds the lock.
func (l *load) pick(aim slot.Set) *site {
	for range 200 {
		if len(l.sites) == 0 {
			return nil
		}
		s := l.sites[l.random.IntN(len(l.sites))]
		if !s.busy && (aim.Empty() || aim.Has(l.slotOf(s.key))) {
			s.busy = true
			return s
		}
	}
	return nil
}

// finish notes how it went. A Website that it is given is idle again.
func (l *load) finish(s *site, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != nil {
		s.busy = false
	}
	if err != nil {
		l.counts.failures++
		l.err = err
	}
}

func (l *load) update(ctx context.Context, s *site) error {
	obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}}
	patch := fmt.Appendf(nil, `{"spec":{"content":%q}}`, l.content(s))
	if err := l.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("update website %s: %w", s.key, err)
	}
	commit := journal.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.updates++
	l.updates = append(l.updates, check.Update{Key: s.key, UID: string(obj.UID), Generation: obj.Generation, Commit: commit})
	return nil
}

// remove deletes the Website and forgets it.
func (l *load) remove(ctx context.Context, s *site) error {
	obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}}
	if err := l.client.Delete(ctx, obj); err != nil {
		return fmt.Errorf("delete website %s: %w", s.key, err)
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
	commit := journal.Now()
	l.mu.Lock()
	l.deletions = append(l.deletions, deletion{s.key, commit})
	l.counts.replacements++
	fresh := l.newSite()
	l.mu.Unlock()
	return l.create(ctx, fresh)
}

// wait returns ctx's error if it ends first.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
