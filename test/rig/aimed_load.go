package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// collectAfter is how long after its deletion the children of a Website are deleted, at the earliest: a reconcile that
// had begun before may still create some.
const collectAfter = 3 * time.Second

// AimedLoad updates Websites, recreates some and replaces others, so that a page left behind shows. It also deletes and
// defaces children. While slots move, half of what it does is to objects of those slots.
type AimedLoad struct {
	*Load
	// Pages are what the operator publishes.
	Pages website.Pages
	// Spare keeps the load from touching children, for operators that do not watch them.
	Spare bool

	client client.Client
	slotOf func(judge.Site) slot.Slot
	random *rand.Rand // for Run's first goroutine
	// moving are the slots on the way, at which so many more updates per second aim.
	moving atomic.Pointer[slot.Set]
	more   atomic.Int64
	rate   float64
	end    context.CancelFunc // of Run; nil before it
	// garbage are deleted Websites whose children have not been deleted. Deletions before collected are in it, or done.
	garbage   []judge.Deletion
	collected int
}

// NewAimedLoad returns a load on the Websites of a cluster, whose operator publishes pages.
func NewAimedLoad(c *Cluster, seed uint64, pages website.Pages, slotOf func(judge.Site) slot.Slot) *AimedLoad {
	l := &AimedLoad{
		Load: NewLoad(c.Client, c.Sites, seed, specOf), random: rand.New(rand.NewPCG(seed, 1)),
		client: c.Client, Pages: pages, slotOf: slotOf,
	}
	l.moving.Store(&slot.Set{})
	return l
}

const lorem = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore " +
	"et dolore magna aliqua. "

// specOf returns a Website's specification: half of them are protected. They ask for no Pods: the rig's own API server
// runs none, and a user's cluster must not.
func specOf(s *Site) webv1.WebsiteSpec {
	return webv1.WebsiteSpec{
		Title: "Website " + s.Name, Content: fmt.Sprintf("Edition %d. %s", s.Edition, lorem),
		Protected: s.Number%2 == 0, Replicas: ptr.To[int32](0),
	}
}

// Aim points half of the load at slots.
func (l *AimedLoad) Aim(at slot.Set) { l.moving.Store(&at) }

// More makes the load send so many more updates per second to the slots that it aims at, but not more than its rate.
func (l *AimedLoad) More(perSecond int64) { l.more.Store(max(1, min(perSecond, int64(l.rate)))) }

// Run works at the rate until Finish is called, or later ends.
func (l *AimedLoad) Run(later context.Context, rate float64) {
	ctx, end := context.WithCancel(later)
	l.rate, l.end = rate, end
	l.More(1)
	l.Tick(ctx, func() time.Duration { return time.Duration(float64(time.Second) / rate) }, func() { l.one(later) })
	l.Tick(ctx, func() time.Duration { return time.Second / time.Duration(l.more.Load()) }, func() {
		if aim := *l.moving.Load(); !aim.Empty() {
			l.Start(later, l.Of(aim), l.Update)
		}
	})
	l.Tick(ctx, func() time.Duration { return time.Second }, func() { l.collect(later) })
}

// Finish ends the load, and waits until what it began is done.
func (l *AimedLoad) Finish() {
	if l.end != nil {
		l.end()
	}
	l.Wait()
}

// one does one thing of the load, in the background.
func (l *AimedLoad) one(ctx context.Context) {
	aim := slot.Set{}
	if l.random.IntN(2) == 0 {
		aim = *l.moving.Load()
	}
	var do func(context.Context, *Site) error
	switch choice := l.random.IntN(100); {
	case choice < 54 || l.Spare && choice >= 90:
		do = l.Update
	case choice < 72:
		do = l.Recreate
	case choice < 90:
		do = l.Replace
	default:
		child := l.random.IntN(2 * len(ChildKinds))
		do = func(ctx context.Context, s *Site) error { return l.tamper(ctx, s, child) }
	}
	l.Start(ctx, l.Of(aim), do)
}

// Of chooses a Website of the slots, or any if there are none.
func (l *AimedLoad) Of(aim slot.Set) func(*rand.Rand, []*Site) *Site {
	return func(random *rand.Rand, sites []*Site) *Site {
		return Pick(random, sites, func(s *Site) bool { return aim.Empty() || aim.Has(l.slotOf(s.Site)) })
	}
}

// tamper deletes or defaces a child of the Website. It need not be there yet.
func (l *AimedLoad) tamper(ctx context.Context, s *Site, choice int) error {
	kind := ChildKinds[choice/2]
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

// collect deletes the children of Websites that are gone. The garbage collector of a cluster does the same; the rig's
// own control plane has none. It waits until the page is withdrawn: the deletion of a child wakes the operator, too,
// and its event must not stand in for the Website's.
func (l *AimedLoad) collect(ctx context.Context) {
	deletions := l.Deletions()
	all := slices.Concat(l.garbage, deletions[l.collected:])
	l.garbage, l.collected = nil, len(deletions)
	for _, d := range all {
		if journal.Now()-d.Commit < collectAfter || l.Pages.Published(d.NamespacedName) {
			l.garbage = append(l.garbage, d)
			continue
		}
		l.Go(func() error {
			var errs []error
			for _, kind := range ChildKinds {
				errs = append(errs, client.IgnoreNotFound(l.client.Delete(ctx, kind.Of(d.NamespacedName))))
			}
			return errors.Join(errs...)
		})
	}
}

// Leftovers are the Websites that are gone and have a page. Of those that are among the deletions, all is known.
func (l *AimedLoad) Leftovers(deletions []judge.Deletion) (out []judge.Deletion, err error) {
	files, err := os.ReadDir(l.Pages.Dir)
	if err != nil {
		return nil, err
	}
	there, gone := map[types.NamespacedName]bool{}, map[types.NamespacedName]judge.Deletion{}
	for _, s := range l.Sites() {
		there[s.NamespacedName] = true
	}
	for _, d := range deletions {
		gone[d.NamespacedName] = d
	}
	for _, f := range files {
		namespace, name, ok := strings.Cut(strings.TrimSuffix(f.Name(), ".html"), "_")
		key := types.NamespacedName{Namespace: namespace, Name: name}
		if ok && !there[key] {
			out = append(out, cmp.Or(gone[key], judge.Deletion{Site: judge.Site{NamespacedName: key}}))
		}
	}
	return out, nil
}

// Survey counts the Websites, and those whose status does not show their latest generation or whose page is another.
func (l *AimedLoad) Survey(ctx context.Context) (total, behind int, example string, err error) {
	var list webv1.WebsiteList
	err = l.client.List(ctx, &list, client.InNamespace(l.namespace))
	for i := range list.Items {
		if w := &list.Items[i]; w.Status.ObservedGeneration != w.Generation || w.DeletionTimestamp != nil ||
			l.Pages.Checksum(client.ObjectKeyFromObject(w)) != w.Status.Checksum {
			behind, example = behind+1, w.Name
		}
	}
	return len(list.Items), behind, example, err
}
