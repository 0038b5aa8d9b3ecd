package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// collectAfter is how long after its deletion the children of a Website are deleted, at the earliest: a reconcile that
// had begun before may still create some.
const collectAfter = 3 * time.Second

// load updates Websites, recreates some and replaces others, so that a page left behind shows. It also deletes and
// defaces children. While slots move, half of what it does is to objects of those slots.
type load struct {
	*rig.Load
	client client.Client
	pages  website.Pages
	slotOf func(judge.Site) slot.Slot
	random *rand.Rand // for run's first goroutine
	// moving are the slots on the way, at which canaries many updates per second aim.
	moving   atomic.Pointer[slot.Set]
	canaries atomic.Int64
	rate     float64
	end      context.CancelFunc // of run; nil before it
	// garbage are deleted Websites whose children have not been deleted. Deletions before collected are in it, or done.
	garbage   []judge.Deletion
	collected int
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

// specOf returns a Website's specification: half of them are protected. They ask for no Pods: the demo's own API server
// runs none, and a user's cluster must not.
func specOf(s *rig.Site) webv1.WebsiteSpec {
	return webv1.WebsiteSpec{
		Title: "Website " + s.Name, Content: fmt.Sprintf("Edition %d. %s", s.Edition, text),
		Protected: s.Number%2 == 0, Replicas: ptr.To[int32](0),
	}
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

// tamper deletes or defaces a child of the Website. It need not be there yet.
func (l *load) tamper(ctx context.Context, s *rig.Site, choice int) error {
	kind := rig.ChildKinds[choice/2]
	obj := kind.Of(s.NamespacedName)
	var err error
	if choice%2 == 0 {
		err = l.client.Delete(ctx, obj)
	} else {
		err = l.client.Patch(ctx, obj, client.RawPatch(kind.Patch, []byte(kind.PatchBody)))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("tamper with %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// collect deletes the children of Websites that are gone. The garbage collector of a cluster does the same; the demo's
// own control plane has none. It waits until the page is withdrawn: the deletion of a child wakes the operator, too,
// and its event must not stand in for the Website's.
func (l *load) collect(ctx context.Context) {
	deletions := l.Deletions()
	all := slices.Concat(l.garbage, deletions[l.collected:])
	l.garbage, l.collected = nil, len(deletions)
	for _, d := range all {
		if journal.Now()-d.Commit < collectAfter || l.pages.Published(d.NamespacedName) {
			l.garbage = append(l.garbage, d)
			continue
		}
		l.Go(func() error {
			var errs []error
			for _, kind := range rig.ChildKinds {
				errs = append(errs, client.IgnoreNotFound(l.client.Delete(ctx, kind.Of(d.NamespacedName))))
			}
			return errors.Join(errs...)
		})
	}
}
