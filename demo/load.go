package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// load updates Websites, recreates some and replaces others, so that a page left behind shows. It also deletes and
// defaces children, and renews certificates. While slots move, half of what it does is to objects of those slots.
type load struct {
	*rig.Load
	client client.Client
	pages  website.Pages
	slotOf func(judge.Site) slot.Slot
	random *rand.Rand // for run's first goroutine
	// moving are the slots on the way, aimed at by canaries.
	moving atomic.Pointer[slot.Set]
	// canaries is how many updates per second aim at the slots on the way.
	canaries atomic.Int64
	rate     float64
	end      context.CancelFunc // of run; nil before it

	mu sync.Mutex
	// garbage are deleted Websites whose children have not been deleted. Deletions before collected are in it, or done.
	garbage   []judge.Deletion
	collected int
	// renewals are how often each certificate was renewed; renewed is their sum.
	renewals          [certificates]int
	renewed, tampered int
}

func newLoad(c client.Client, seed uint64, pages website.Pages, slotOf func(judge.Site) slot.Slot) *load {
	l := &load{
		Load: rig.NewLoad(c, SitesNamespace, seed, specOf), random: rand.New(rand.NewPCG(seed, 1)),
		client: c, pages: pages, slotOf: slotOf,
	}
	l.moving.Store(&slot.Set{})
	return l
}

const text = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore " +
	"et dolore magna aliqua. "

// specOf returns a Website's specification: half of them are protected, and three of four have a certificate. They ask
// for no Pods: the demo's own API server runs none, and somebody's cluster shall not.
func specOf(s *rig.Site) webv1.WebsiteSpec {
	spec := webv1.WebsiteSpec{
		Title: "Website " + s.Name, Content: fmt.Sprintf("Edition %d. %s", s.Edition, text),
		Protected: s.Number%2 == 0, Replicas: ptr.To[int32](0),
	}
	if s.Number%4 != 0 {
		spec.SecretName = certificate(s.Number % certificates)
	}
	return spec
}

// aimed makes the load send so many updates per second to slots on the way, or as many as it is large.
func (l *load) aimed(perSecond int64) { l.canaries.Store(max(1, min(perSecond, int64(l.rate)))) }

// run works at the rate until finish is called, or later ends.
func (l *load) run(later context.Context, rate float64) {
	ctx, end := context.WithCancel(later)
	l.rate, l.end = rate, end
	l.aimed(canaryRate)
	l.Tick(ctx, func() time.Duration { return time.Duration(float64(time.Second) / rate) }, func() { l.one(later) })
	l.Tick(ctx, func() time.Duration { return time.Second / time.Duration(l.canaries.Load()) }, func() {
		if aim := *l.moving.Load(); !aim.Empty() {
			l.Start(later, l.of(aim), l.Update)
		}
	})
	l.Tick(ctx, func() time.Duration { return time.Second }, func() { l.collect(later) })
}

// finish ends the load, and waits until what it began is done.
func (l *load) finish() {
	if l.end != nil {
		l.end()
	}
	l.Wait()
}

// one does one thing of the load, in the background.
func (l *load) one(ctx context.Context) {
	if l.random.IntN(renewEvery) == 0 {
		number := l.random.IntN(certificates)
		l.Go(func() error { return l.renew(ctx, number) })
		return
	}
	aim := slot.Set{}
	if l.random.IntN(2) == 0 {
		aim = *l.moving.Load()
	}
	var do func(context.Context, *rig.Site) error
	switch choice := l.random.IntN(100); {
	case choice < 54:
		do = l.Update
	case choice < 72:
		do = l.Recreate
	case choice < 90:
		do = l.Replace
	default:
		child := l.random.IntN(2 * len(rig.ChildKinds))
		do = func(ctx context.Context, s *rig.Site) error { return l.tamper(ctx, s, child) }
	}
	l.Start(ctx, l.of(aim), do)
}

// of chooses a Website of the slots, or any if there are none.
func (l *load) of(aim slot.Set) func(*rand.Rand, []*rig.Site) *rig.Site {
	return func(random *rand.Rand, sites []*rig.Site) *rig.Site {
		return rig.Pick(random, sites, func(s *rig.Site) bool { return aim.Empty() || aim.Has(l.slotOf(s.Site)) })
	}
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
