package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// pair are members that share objects: in each of some slots one whose reconcile takes long, and one whose does not.
type pair struct {
	t           *testing.T
	r           [2]*Engine
	c           [2]*controllers.Controller
	inf         [2]cache.SharedIndexInformer
	run         [2]chan error
	stop        [2]context.CancelFunc
	long, peers []types.NamespacedName
	served      []time.Time
	worst       time.Duration
}

// newPair starts the first member only, and returns when it owns all slots.
func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t}
	of := map[slot.Slot][]types.NamespacedName{}
	shared := memory.New()
	for n := range p.r {
		r := testRota(t)
		r.cfg.Self.ID, r.cfg.Self.Pod = fmt.Sprintf("web-%d-abcde", n), fmt.Sprintf("web-%d", n)
		r.store = shared.Client(nil)
		kind := schema.GroupKind{Kind: "ConfigMap"}
		c := testController(t, r, "test", kind, ignore)
		c.Started()
		p.r[n], p.c[n] = r, c
	}
	for i := 0; len(p.long) < 20; i++ {
		key := types.NamespacedName{Namespace: "a", Name: fmt.Sprint("object-", i)}
		s := slotOf(p.r[0], key)
		if of[s] = append(of[s], key); len(of[s]) == 2 {
			p.long, p.peers = append(p.long, of[s][0]), append(p.peers, of[s][1])
		}
	}
	p.served = make([]time.Time, len(p.peers))
	begun := time.Now()
	p.start(0)
	for open := p.r[0].gate.OpenSet(); open.Len() < 256; open = p.r[0].gate.OpenSet() {
		select {
		case err := <-p.run[0]:
			t.Fatalf("Run has ended: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Since(begun) > 10*time.Minute {
			t.Fatalf("%d slots are open after 10 minutes", open.Len())
		}
	}
	for n := range p.served {
		p.served[n] = time.Now()
	}
	return p
}

// start runs a member whose store has the objects once it has joined.
func (p *pair) start(n int) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	p.stop[n], p.run[n] = cancel, make(chan error, 1)
	go func() { p.run[n] <- newIncarnation(ctx, p.r[n]).run(ctx).Err }() // Run refuses informers that do not run
	select {
	case <-p.r[n].Joined():
	case err := <-p.run[n]:
		p.t.Fatalf("Run has ended: %v", err)
	}
	inf := p.r[n].share.NewInformer(schema.GroupKind{Kind: "ConfigMap"}, &cache.ListWatch{}, &corev1.ConfigMap{}, deliverytest.Never, nil)
	p.inf[n] = inf
	for _, key := range slices.Concat(p.long, p.peers) {
		require.NoError(p.t, inf.GetIndexer().Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
			Name: key.Name}}))
	}
}

func (p *pair) end() {
	for n, stop := range p.stop {
		if stop != nil {
			stop()
			<-p.run[n]
		}
	}
}

// work reconciles the other object of each slot ten times a second, wherever it is, and notes how long one had to wait.
func (p *pair) work(d time.Duration, until func() bool) {
	for begun := time.Now(); time.Since(begun) < d && !until(); {
		for n, key := range p.peers {
			for _, c := range p.c {
				if _, ok := c.Admit(p.t.Context(), key); ok {
					c.Done(key)
					p.served[n] = time.Now()
					break
				}
			}
			p.worst = max(p.worst, time.Since(p.served[n]))
		}
		<-time.After(100 * time.Millisecond)
	}
}

// R6: while slots in which reconciles of a minute run are handed over to one who joins, their other objects wait for
// less than a second.
func TestR6LongReconcilesDoNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.end()
		for _, key := range p.long {
			ctx, ok := p.c[0].Admit(t.Context(), key)
			if !ok {
				t.Fatal("not admitted")
			}
			time.AfterFunc(time.Minute, func() {
				if ctx.Err() != nil {
					t.Errorf("the reconcile of %s was cut short: %v", key, context.Cause(ctx))
				}
				p.c[0].Done(key)
			})
		}
		p.start(1)
		open := func() int { set := p.r[1].gate.OpenSet(); return set.Len() }
		p.work(50*time.Second, func() bool { return false })
		if n := open(); n == 0 || n == 128 {
			t.Errorf("%d slots have moved while others are held back, want some", n)
		}
		p.work(30*time.Second, func() bool { return false })
		if n := open(); n != 128 {
			t.Errorf("%d slots have moved in the end, want 128", n)
		}
		if p.worst > time.Second {
			t.Errorf("an object waited for %v beside a long reconcile, want 1s at most", p.worst)
		}
	})
}

// R6, R9: a leaver cuts short what takes long, in time for its slots to be handed over.
func TestR9LeaversCutLongReconcilesShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.end()
		p.start(1)
		p.work(10*time.Second, func() bool { return false })
		var cut atomic.Int64
		for _, key := range p.long {
			ctx, ok := p.c[0].Admit(t.Context(), key)
			if !ok {
				continue // it is with the other
			}
			go func() {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), gate.ErrHandover) || !gate.CutShort(ctx) {
					t.Errorf("the reconcile of %s was ended because of %v", key, context.Cause(ctx))
				}
				cut.Add(1)
				p.c[0].Done(key)
			}()
		}
		left := time.Now()
		p.stop[0]()
		p.stop[0] = nil
		var err error
		p.work(30*time.Second, func() bool {
			select {
			case err = <-p.run[0]:
				return true
			default:
				return false
			}
		})
		took := time.Since(left)
		p.work(time.Second, func() bool { return false }) // the other opens what it was given at the last
		if err != nil || took < 19*time.Second || took > 23*time.Second {
			t.Errorf("left after %v: %v; want it when 6 s of LeaveTimeout are left", took, err)
		}
		if open := p.r[1].gate.OpenSet(); cut.Load() == 0 || open.Len() != 256 {
			t.Errorf("%d reconciles were cut short, the other has %d slots open, want some and 256", cut.Load(), open.Len())
		}
		if n, _ := metricOf(t, p.r[0], "rota_events_total", "reason", "CutShort"); n == 0 {
			t.Error("no event says which reconciles were cut short")
		}
		if p.worst > time.Second {
			t.Errorf("an object waited for %v, want 1s at most", p.worst)
		}
	})
}

// drainOf drains slots, and looks at the drain as an incarnation does until end is called. drained is closed when one of
// them is given up.
func drainOf(r *Engine, set slot.Set) (drained <-chan struct{}, end func()) {
	idle, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	look := r.holder().Drain(replica.Drain{
		Slots: set, Idle: func(slot.Slot, []table.Gone) { once.Do(func() { close(idle) }) },
		LeaveBy: func(float64) time.Duration { return math.MaxInt64 },
	})
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			if !look() {
				return
			}
		}
	})
	return idle, func() { close(over); looking.Wait(); r.closeStore() }
}

// R15: how long deletions are waited for that go nowhere depends on what becomes of those in the same slot, whosever
// they are. A key that keeps failing does not hold its slot for ever beside others that succeed.
func TestR15FailingDeletionsDoNotHoldTheirSlot(t *testing.T) {
	for _, test := range []struct {
		name string
		// beside is how many deletions succeed beside one that keeps failing, a second each, in the same slot or not.
		beside     int
		sameSlot   bool
		controller int // whose they are; 0: the failing one's
		want       time.Duration
	}{
		{"others succeed in another slot", 900, false, 0, work.DeletionPatience},
		{"another controller's succeed", 30, true, 1, 30*time.Second + work.DeletionPatience},
		{"others never end", 900, true, 1, work.DeletionLimit},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := testRota(t)
				var both []*controllers.Controller
				for _, name := range []string{"one", "two"} {
					c := testController(t, r, name, schema.GroupKind{Kind: "ConfigMap"}, ignore)
					both = append(both, c)
				}
				fails := types.NamespacedName{Namespace: "a", Name: "fails"}
				draining, all := slotOf(r, fails), slot.SetOf(slot.Range{Last: slot.Slot(r.cfg.Slots - 1)})
				r.share.Hold(all)
				r.gate.SetDeadline(24 * time.Hour)
				r.gate.Open(all, 7)
				both[0].Add(fails)
				var beside []types.NamespacedName
				for n := 0; len(beside) < test.beside; n++ {
					key := types.NamespacedName{Namespace: "a", Name: fmt.Sprint(n)}
					if (slotOf(r, key) == draining) == test.sameSlot {
						beside = append(beside, key)
						both[test.controller].Add(key)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				var workers sync.WaitGroup
				defer func() { cancel(); workers.Wait() }()
				begun := time.Now()
				var mine slot.Set
				mine.Add(draining)
				drained, end := drainOf(r, mine)
				defer end()
				told := make(chan []string, 1)
				time.AfterFunc(replica.HeldBackAfter, func() { told <- r.holder().HeldBack(mine) })
				reconcile := func(c *controllers.Controller, key types.NamespacedName, again bool) bool {
					c.Take(key)
					_, ok := c.Admit(t.Context(), key)
					if ok {
						<-time.After(time.Second)
						if again {
							c.AddLater(key)
						}
					}
					c.Done(key)
					return ok
				}
				workers.Go(func() {
					for reconcile(both[0], fails, true) {
						<-time.After(time.Millisecond)
					}
				})
				workers.Go(func() {
					for _, key := range beside {
						if ctx.Err() != nil || !reconcile(both[test.controller], key, false) {
							return
						}
					}
				})
				<-drained
				if took := time.Since(begun); took < test.want || took > test.want+3*time.Second {
					t.Errorf("the slot is given up after %v, want %v", took, test.want)
				}
				series := (&labMember{Engine: r, lab: &lab{t: t}}).scrape()
				if n := series[`rota_deletions_abandoned_total{rota="operators/website"}`]; n == 0 {
					t.Error("no deletion is said to be given up")
				}
				if held := <-told; len(held) != 1 || !strings.Contains(held[0], "deletions in them wait") {
					t.Errorf("%q, want that deletions hold the slot back", held)
				}
			})
		})
	}
}
