package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
	"github.com/rota-dev/rota/test/store/storetest"
)

func TestMemory(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("history kept", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) storetest.Target { return memoryTarget(false) })
	})
	t.Run("history lost at disconnects", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) storetest.Target { return memoryTarget(true) })
	})
}

func memoryTarget(forget bool) storetest.Target {
	m := memory.New()
	return storetest.Target{Store: m.Client(nil), Other: m.Client(nil), Tamper: memoryTamper{m, forget}}
}

type memoryTamper struct {
	*memory.Store
	forget bool
}

func (m memoryTamper) RemoveTable(*testing.T) { m.Do((*memory.Objects).RemoveTable) }
func (m memoryTamper) Text(*testing.T) (text map[string]string) {
	m.Do(func(o *memory.Objects) { text = o.Text() })
	return text
}
func (m memoryTamper) EditTable(_ *testing.T, edit func(map[string]string)) {
	m.Do(func(o *memory.Objects) { o.EditTable(edit) })
}
func (m memoryTamper) RestoreTable(_ *testing.T, text map[string]string) {
	m.Do(func(o *memory.Objects) { o.RestoreTable(text) })
}
func (m memoryTamper) RemoveLease(_ *testing.T, id string) {
	m.Do(func(o *memory.Objects) { o.RemoveLease(id) })
}
func (m memoryTamper) TouchLease(_ *testing.T, id string) {
	m.Do(func(o *memory.Objects) { o.TouchLease(id) })
}
func (m memoryTamper) HoldLease(_ *testing.T, id, holder string) {
	m.Do(func(o *memory.Objects) { o.HoldLease(id, holder) })
}
func (m memoryTamper) Disconnect(*testing.T) { m.Store.Disconnect(m.forget) }

// TestMemoryFaults: rule R6, an unknown outcome is told from a definite one, with and without effect.
func TestMemoryFaults(t *testing.T) {
	broken := errors.New("refused")
	for _, test := range []struct {
		name   string
		hook   memory.Hook
		want   member.Outcome
		exists bool
	}{
		{"refused", func(_ context.Context, _ memory.Op, after bool) error {
			if after {
				return nil
			}
			return broken
		}, member.OutcomeFailed, false},
		{"request lost", func(_ context.Context, _ memory.Op, after bool) error {
			if after {
				return nil
			}
			return memory.ErrLost
		}, member.OutcomeUnknown, false},
		{"response lost", func(_ context.Context, _ memory.Op, after bool) error {
			if after {
				return memory.ErrLost
			}
			return nil
		}, member.OutcomeUnknown, true},
		{"hangs", func(ctx context.Context, _ memory.Op, _ bool) error {
			<-ctx.Done()
			return nil
		}, member.OutcomeUnknown, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory.New()
				_, o, err := m.Client(test.hook).CreateLease(t.Context(), member.Lease{ID: "a"}, time.Second)
				if o != test.want || err == nil {
					t.Errorf("outcome %v, error %v; want outcome %v", o, err, test.want)
				}
				m.Do(func(o *memory.Objects) {
					if _, exists := o.Lease("a"); exists != test.exists {
						t.Errorf("the lease exists: %t, want %t", exists, test.exists)
					}
				})
			})
		})
	}
}

func TestMemoryCounts(t *testing.T) {
	m := memory.New()
	c := m.Client(nil)
	watch := storetest.WatchLeases(t, c, true)
	watch.Next(t)
	l, _, err := c.CreateLease(t.Context(), member.Lease{ID: "a"}, time.Second)
	require.NoError(t, err)
	if _, _, err = c.RenewLease(t.Context(), l, time.Second); err != nil {
		t.Fatal(err)
	}
	watch.Next(t)
	watch.Next(t)
	got := m.Counts()
	if got.Requests[memory.OpRenewLease] != 1 || got.Requests[memory.OpWatchLeases] != 1 || got.Events != 2 {
		t.Errorf("counts %+v, want one renewal, one watch, two events", got)
	}
	c.Notify(t.Context(), member.Notify{Reason: "Expelled"})
	if notes := m.Notes(); len(notes) != 1 || notes[0].Reason != "Expelled" {
		t.Errorf("notes %+v", notes)
	}
}

// TestObjectsHistory: a simulator serves a watcher at any position still known.
func TestObjectsHistory(t *testing.T) {
	o := memory.NewObjects()
	l, _ := o.CreateLease(member.Lease{ID: "a"})
	from := o.Version()
	late := l
	l, _ = o.PutLease(l)
	if _, out := o.PutLease(late); out != member.OutcomeConflict {
		t.Errorf("a late renewal: outcome %v, want a conflict", out)
	}
	o.RemoveLease("a")
	changes, ok := o.Since(from)
	if !ok || len(changes) != 2 || changes[0].Lease.Version != l.Version || changes[1].Gone != "a" {
		t.Errorf("since %d: %+v, %t", from, changes, ok)
	}
	o.Forget()
	if _, ok := o.Since(from); ok {
		t.Error("the history was forgotten, but served")
	}
	if changes, ok := o.Since(o.Version()); !ok || len(changes) != 0 {
		t.Errorf("since now: %+v, %t", changes, ok)
	}
	for range 20000 {
		o.TouchLease("a")
	}
	if _, ok := o.Since(0); ok {
		t.Error("the history is not bounded")
	}
	if changes, ok := o.Since(o.Version() - 100); !ok || len(changes) != 100 {
		t.Errorf("the last 100 changes: got %d, %t", len(changes), ok)
	}
}
