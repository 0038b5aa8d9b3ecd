package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// leaver is a member with a queue, from which slots leave.
type leaver struct {
	t       *testing.T
	r       *Engine
	q       *Queue[cache.ObjectName]
	objects testObjects
	mine    slot.Set
	happens []string
}

func newLeaver(t *testing.T, r *Engine) *leaver {
	l := &leaver{t: t, r: r, objects: testHolder(t, r)}
	l.q, _ = testQueue(t, r)
	l.q.OnLost(func(_ context.Context, item cache.ObjectName) { l.note("lost " + item.Name) })
	l.mine = own(r, testItem)
	return l
}

func (l *leaver) note(what string) { l.happens = append(l.happens, what) }

// leave has all slots leave, as in an expel: nobody waits for what is in flight.
func (l *leaver) leave() {
	l.objects.Shut(l.mine)
	l.objects.Release(l.mine)
	synctest.Wait()
}

func (l *leaver) come() {
	l.objects.Hold(l.mine)
	l.objects.Open(l.mine, 9)
}

// sync has a worker sync the item.
func (l *leaver) sync(do func(ctx context.Context) error) {
	l.q.Add(testItem)
	item, _ := l.q.Get()
	_ = l.q.Admit(func(ctx context.Context, _ cache.ObjectName) error {
		l.note("sync")
		err := do(ctx)
		l.note("synced")
		return err
	})(l.t.Context(), item)
	l.q.Done(item)
}

func (*leaver) nothing(context.Context) error { return nil }

// R10: OnLost is called once for each object that was synced here and whose slot left, when nothing of it is in flight.
func TestR10Lost(t *testing.T) {
	for name, test := range map[string]struct {
		gone bool // there is no object
		do   func(l *leaver)
		want []string
	}{
		"the slot goes": {do: func(l *leaver) {
			l.sync(l.nothing)
			l.sync(l.nothing)
			l.leave()
			l.leave() // nothing is left
		}, want: []string{"sync", "synced", "sync", "synced", "lost b"}},
		"and goes again": {do: func(l *leaver) {
			for range 2 {
				l.sync(l.nothing)
				l.leave()
				l.come()
			}
		}, want: []string{"sync", "synced", "lost b", "sync", "synced", "lost b"}},
		"it was never synced": {do: (*leaver).leave},
		"a lapse": {do: func(l *leaver) {
			l.sync(l.nothing)
			l.objects.Shut(l.mine)
			l.objects.Open(l.mine, 7)
		}, want: []string{"sync", "synced"}},
		"the deletion was synced": {gone: true, do: func(l *leaver) {
			l.sync(l.nothing)
			l.leave()
		}, want: []string{"sync", "synced"}},
		"the sync of the deletion failed": {gone: true, do: func(l *leaver) {
			l.sync(func(context.Context) error { return errors.New("boom") })
			l.leave()
		}, want: []string{"sync", "synced", "lost b"}},
		"a sync goes on": {do: func(l *leaver) {
			l.sync(func(context.Context) error {
				l.leave()
				time.Sleep(time.Minute)
				return nil
			})
		}, want: []string{"sync", "synced", "lost b"}},
		"a goroutine goes on": {do: func(l *leaver) {
			l.sync(func(ctx context.Context) error {
				return work.Start(ctx, func(ctx context.Context) {
					<-ctx.Done()
					time.Sleep(time.Minute)
					l.note("returned")
				})
			})
			l.leave()
		}, want: []string{"sync", "synced", "returned", "lost b"}},
		"it comes back while a sync goes on": {do: func(l *leaver) {
			l.sync(func(context.Context) error {
				l.leave()
				l.come()
				return nil
			})
			l.sync(l.nothing)
		}, want: []string{"sync", "synced", "lost b", "sync", "synced"}},
		"it leaves before a sync that was admitted": {do: func(l *leaver) {
			l.r.controllers.Observe(leavesAtBegin{l})
			l.sync(l.nothing)
		}, want: []string{"sync", "synced", "lost b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeaver(t, testRota(t))
				if !test.gone {
					keep(t, l.r)
				}
				test.do(l)
				time.Sleep(time.Hour)
				synctest.Wait()
				if !slices.Equal(l.happens, test.want) {
					t.Errorf("happened: %q, want %q", l.happens, test.want)
				}
				if n, set := l.q.queue.Controller().Losses(); n != 0 || !set {
					t.Errorf("%d calls are to come (set: %t)", n, set)
				}
			})
		})
	}
}

// leavesAtBegin is an observer that has the slots leave when a reconcile begins.
type leavesAtBegin struct{ *leaver }

func (l leavesAtBegin) Begin(ctx context.Context, _ schema.GroupKind, _ types.NamespacedName) context.Context {
	l.leave()
	return ctx
}

func (leavesAtBegin) Result(schema.GroupKind, types.NamespacedName, error) {}
func (leavesAtBegin) End(schema.GroupKind, types.NamespacedName)           {}

// A function of OnLost that hangs holds up neither the handover nor other objects. Its object is not synced beside it.
// When too many hang, it is not called any more, and nothing is remembered of what leaves.
func TestLostHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		l := newLeaver(t, testRotaLogging(t, log.logger()))
		l.mine = l.r.cfg.Slots.All()
		openSlots(l.r, l.mine)
		c := l.q.queue.Controller()
		end, called := make(chan struct{}), map[string]time.Duration{}
		var hang func(string) bool
		var mu sync.Mutex
		l.q.OnLost(func(ctx context.Context, item cache.ObjectName) {
			mu.Lock()
			called[item.Name] = l.r.now()
			mu.Unlock()
			if hang(item.Name) {
				<-ctx.Done()
				<-end
			}
		})
		meet := func(names ...string) {
			for _, name := range names {
				key := types.NamespacedName{Namespace: "a", Name: name}
				if _, ok := c.Admit(t.Context(), key); !ok {
					t.Fatalf("%s is not admitted", name)
				}
				c.Ended(key, errors.New("boom")) // it is gone, and that is not dealt with
				c.Done(key)
			}
		}
		left := func() (n int) { n, _ = c.Losses(); return n }

		hang = func(name string) bool { return name == "hangs" }
		meet("hangs")
		l.leave()
		if left() != 1 {
			t.Errorf("%d objects wait for a call, want the one whose call hangs", left())
		}
		l.come()
		hanging := types.NamespacedName{Namespace: "a", Name: "hangs"}
		if _, ok := c.Admit(t.Context(), hanging); ok {
			t.Error("an object is synced while OnLost is being called for it")
		}
		c.Done(hanging)
		meet("other")
		l.leave()
		begun := l.r.now()
		time.Sleep(time.Minute)
		synctest.Wait()
		if after := called["other"] - begun; after > 10*time.Second {
			t.Errorf("OnLost is called for another object after %v, want 10 s at most", after)
		}
		log.wants(t, 1, "OnLost has not returned", `"object"="a/hangs"`)

		hang = func(string) bool { return true }
		l.come()
		var many []string
		for n := range 50 {
			many = append(many, fmt.Sprint(n))
		}
		meet(many...)
		l.leave()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(called) != 2+9 || left() != 10 {
			t.Errorf("called for %d objects, %d not returned, want 11 and 10", len(called), left())
		}
		log.wants(t, 1, "earlier calls hang", `"objects"=41`, `"hang"=10`)
		close(end)
		synctest.Wait()
		l.come()
		hang = func(string) bool { return false }
		meet("hangs", "again")
		l.leave()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, again := called["again"]; !again || left() != 0 {
			t.Errorf("called again: %t, %d objects left, want true and 0", again, left())
		}
	})
}
