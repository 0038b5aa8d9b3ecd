package replica

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

var electionLease = types.NamespacedName{Namespace: "operators", Name: "website-operator"}

// loads is a holder that has everything as soon as it is asked.
type loads struct {
	causes []table.Cause
	later  bool // what Expect was told
	// meanwhile is called during each load; nil: nothing is.
	meanwhile func()
}

func (*loads) Hold(slot.Set)                                          {}
func (l *loads) Expect(_ member.Load, later bool)                     { l.later = later }
func (*loads) Warm(_ context.Context, set slot.Set) (slot.Set, error) { return set, nil }
func (*loads) Open(context.Context, slot.Set, uint64) (rest func())   { return nil }
func (*loads) CatchUp(context.Context, slot.Set) error                { return nil }
func (*loads) Drain(Drain) (look func() (more bool))                  { return func() bool { return false } }
func (*loads) Shut(slot.Set)                                          {}
func (*loads) Release(slot.Set)                                       {}
func (*loads) HeldBack(slot.Set) []string                             { return nil }
func (*loads) Abandon(slot.Set)                                       {}
func (l *loads) Load(_ context.Context, a member.Load) (slot.Set, error) {
	l.causes = append(l.causes, a.Cause)
	if l.meanwhile != nil {
		l.meanwhile()
	}
	return a.Slots, nil
}

// unwatched is an observer that looks away.
type unwatched struct{}

func (unwatched) Event(member.Event)   {}
func (unwatched) Action(member.Action) {}
func (unwatched) Seen(member.Snapshot) {}

// unwritten is for a member that has written nothing.
type unwritten struct{}

func (unwritten) Versions(slot.Set) table.Versions { return nil }
func (unwritten) Unsettled(slot.Slot) bool         { return false }
func (unwritten) Settle(context.Context, slot.Set) {}

// Another one has the Lease for a moment while a load is under way. What it wrote, the load does not wait for, so it is
// done again, as after an expel. Slots that were not loaded since are handed over without versions.
func TestLoadsAreRepeatedAfterAnotherOnesTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, holder := memory.New().Client(nil), &loads{}
		clock := NewClock(elapsed.NewFrom(func() (time.Duration, bool) { return 0, false }, nil))
		elsewhere := false
		config := member.Config{Self: table.Member{ID: "web-0"}}
		config.SetDefaults()
		r := New(t.Context(), Env{
			Config: config, Watch: unwatched{}, Member: func() Member { return nil }, Clock: clock, State: NewState(), Store: store, Log: logr.Discard(),
			Election: &Election{
				Lease: electionLease, Holder: "rota", Store: store, LedElsewhere: func(other bool) { elsewhere = other },
				Expire: func() bool { return false },
			},
			Writes: unwritten{}, Gate: gate.New(config.Slots, clock.Late), SetDeadline: func(_, _ time.Duration) {},
			Emit: func(context.Context, member.Notify) {},
			Parts: func(calls *Calls) []Part {
				return []Part{{Wait(holder, calls), config.Slots.All()}}
			},
		})
		defer r.Calls.end()
		e := r.term.(*elector)
		e.calls = r.Calls
		put := func(holder string) {
			record, err := store.ReadElection(t.Context(), electionLease)
			require.NoError(t, err)
			record.Holder, record.Duration, record.Renewed = holder, 15*time.Second, record.Renewed+1
			if record, _, err = store.WriteElection(t.Context(), electionLease, record, time.Second); err != nil {
				t.Fatal(err)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			e.core.Heard(clock.Now(), record.Version, record)
			e.settle()
		}
		work := func(long time.Duration) {
			for end := time.Now().Add(long); time.Now().Before(end) || !e.elected(); time.Sleep(100 * time.Millisecond) {
				if req, ok := e.core.Next(clock.Now()); ok {
					e.send(t.Context(), req)
				}
			}
		}
		disturb := func() {
			put("stock-0")
			put("")
			work(0)
		}
		next := func() loaded {
			synctest.Wait()
			events := r.driver.box.take(func(slot.Set) table.Versions { return nil })
			if len(events) != 1 {
				t.Fatalf("events: %v", events)
			}
			return events[0].(loaded)
		}

		set := slot.SetOf(slot.Range{First: 1, Last: 2})
		put("")
		e.core.Join(clock.Now())
		work(2 * config.LeaseDuration) // its turn came long ago
		if e.UpToDate(set) {
			t.Error("it knows slots that it never loaded")
		}
		holder.meanwhile = func() { holder.meanwhile = nil; disturb() }
		r.driver.do(member.Load{Slots: set, Cause: table.CauseHanded})
		time.Sleep(time.Minute)
		got := next()
		if holder.later {
			t.Error("what it fetches is said to be old later, although it has the Lease")
		}
		if want := []table.Cause{table.CauseHanded, table.CauseExpelled}; !slices.Equal(holder.causes, want) ||
			got.Slots != set {
			t.Errorf("loads %v of %+v, want %v", holder.causes, got, want)
		}
		disturb() // after the slots were loaded, and before that is stepped
		if event, ok := r.driver.answered(got); ok {
			t.Errorf("%v is stepped, although another one had the Lease since", event)
		}
		event, ok := r.driver.answered(next())
		if !ok || event.(member.Loaded).Slots != set || len(holder.causes) != 3 {
			t.Errorf("stepped %v (%t) after %v", event, ok, holder.causes)
		}
		if !e.UpToDate(set) {
			t.Error("it does not know the slots that it loaded")
		}
		work(time.Minute)
		if !e.UpToDate(set) {
			t.Error("renewals make it forget the slots")
		}
		if elsewhere {
			t.Error("it has the Lease, and deletions are left to another one")
		}
		put("stock-0")
		if !elsewhere {
			t.Error("another one has the Lease, and deletions are not left to it")
		}
		pass := func(long time.Duration) {
			time.Sleep(long)
			e.mu.Lock()
			defer e.mu.Unlock()
			e.settle()
		}
		if pass(7 * time.Second); elsewhere { // it does not renew
			t.Error("deletions are left to a leader that may have died")
		}
		for range 3 { // it renews every ten seconds a Lease that lasts for 15
			put("stock-0")
			pass(10 * time.Second)
		}
		if !elsewhere {
			t.Error("a leader that renews slowly, as ever, is taken for dead")
		}
		if pass(6 * time.Second); elsewhere {
			t.Error("deletions are left to a leader whose Lease has run out")
		}
		if event, _ := r.driver.answered(member.Drained{Slots: set}); !event.(member.Drained).Stale {
			t.Error("another one has the Lease, and it still knows the slots")
		}
		r.driver.do(member.Load{Slots: set, Cause: table.CauseHanded})
		if synctest.Wait(); !holder.later || len(holder.causes) != 3 {
			t.Errorf("loads %v while another one has the Lease; to come later: %t", holder.causes, holder.later)
		}
		put("")
		work(0)
		next()
		if !e.UpToDate(set) {
			t.Error("it does not know the slots that it loaded when it had the Lease again")
		}
	})
}
