package demo

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/check"
	"github.com/rota-dev/rota/slot"
)

// load changes Websites: it updates some, deletes and recreates others under the same name, and replaces others by new
// ones, so that a page left behind shows. The number of Websites stays the same. It also deletes and defaces children, and
// renews certificates. While slots move, half of what it does is to objects of those slots.
type load struct {
	client client.Client
	pages  website.Pages
	slotOf func(check.Site) slot.Slot
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
	// garbage are deleted Websites whose children have not been deleted.
	garbage []deletion
	// renewals are how often each certificate was renewed.
	renewals [certificates]int
	counts   struct{ updates, recreations, replacements, tampering, renewals, failures int }
	err      error
}

type site struct {
	check.Site
	number int
	busy   bool
	edits  int
}

// deletion is a Website deleted for good.
type deletion struct {
	check.Site
	commit time.Duration
}

func newLoad(c client.Client, seed uint64, pages website.Pages, slotOf func(check.Site) slot.Slot) *load {
	l := &load{client: c, pages: pages, slotOf: slotOf, random: rand.New(rand.NewPCG(seed, 0))}
	l.moving.Store(&slot.Set{})
	return l
}

// run works at the rate until ctx ends, and then ends what it began, in later.
func (l *load) run(ctx, later context.Context, rate float64) {
	l.work.Go(func() {
		l.tick(ctx, func() time.Duration { return time.Duration(float64(time.Second) / rate) }, func() { l.one(later) })
	})
	l.work.Go(func() {
		l.tick(ctx, func() time.Duration { return time.Second / time.Duration(max(1, l.canaryRate.Load())) }, func() { l.canary(later) })
	})
	l.work.Go(func() {
		l.tick(ctx, func() time.Duration { return time.Second }, func() { l.collect(later) })
	})
}

// tick calls do in every interval; those that are late follow at once.
func (l *load) tick(ctx context.Context, interval func() time.Duration, do func()) {
	next := time.Now()
	for await.Sleep(ctx, time.Until(next)) == nil {
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
	choice, child := l.random.IntN(100), l.random.IntN(2*len(childKinds))
	if l.random.IntN(renewEvery) == 0 {
		number := l.random.IntN(certificates)
		l.work.Go(func() { l.finish(nil, l.renew(ctx, number)) })
		return
	}
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
		case choice < 54:
			l.finish(s, l.update(ctx, s))
		case choice < 72:
			l.finish(nil, l.recreate(ctx, s))
		case choice < 90:
			l.finish(nil, l.replace(ctx, s))
		default:
			l.finish(s, l.tamper(ctx, s, child))
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
		if !s.busy && (aim.Empty() || aim.Has(l.slotOf(s.Site))) {
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
