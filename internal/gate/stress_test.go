package gate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// model is what the gate promises, told plainly.
type model struct {
	open, draining, idle, lapsed map[slot.Slot]bool
	inFlight                     map[slot.Slot]int
	deadline                     time.Duration
}

// TestR5R6Model drives the gate by random calls and compares every verdict with a model.
func TestR5R6Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{}
		g := gate.New(4, c.now)
		m := model{map[slot.Slot]bool{}, map[slot.Slot]bool{}, map[slot.Slot]bool{}, map[slot.Slot]bool{}, map[slot.Slot]int{}, 0}
		waiting := map[slot.Slot]bool{} // drains whose idle has not been called
		hard := map[slot.Slot]bool{}    // those that admit deletions only; nothing takes long here
		keys := 0
		type flight struct {
			ctx   context.Context // nil: a hold
			key   gate.Key
			leave func()
		}
		type task struct {
			key   gate.Key
			ctx   context.Context
			leave func() bool
			cause error // what its context has to have ended with
		}
		flights, tasks := map[slot.Slot][]flight{}, map[slot.Slot][]*task{}
		end := func(s slot.Slot, cause error) { // of what goes on between reconciles
			for _, one := range tasks[s] {
				if one.cause == nil {
					one.cause = cause
					m.inFlight[s]++
				}
			}
		}
		pending := map[slot.Slot]bool{}
		aSlot := rapid.Map(rapid.Uint16Range(0, 3), func(n uint16) slot.Slot { return slot.Slot(n) })
		lapse := func() {
			if c.now() < m.deadline {
				return
			}
			for s := range slot.Slot(4) {
				if m.open[s] || m.draining[s] || m.idle[s] {
					m.open[s], m.draining[s], m.idle[s], m.lapsed[s] = false, false, false, true
					delete(waiting, s)
					end(s, gate.ErrExpired)
				}
			}
		}
		expectIdle := map[slot.Slot]int{}
		gotIdle := map[slot.Slot]int{}
		settle := func(s slot.Slot) {
			if m.draining[s] && c.now() >= m.deadline {
				return // it has lapsed, which ends the drain as soon as somebody looks
			}
			if waiting[s] && m.draining[s] && (m.inFlight[s] == 0 || !hard[s]) {
				if hard[s] = !pending[s]; hard[s] {
					end(s, gate.ErrHandover)
				}
			}
			if waiting[s] && m.inFlight[s] == 0 && (!m.draining[s] || !pending[s]) {
				delete(waiting, s)
				expectIdle[s]++
				if m.draining[s] {
					m.draining[s], m.idle[s] = false, true
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"time":     func(t *rapid.T) { c.add(time.Duration(rapid.IntRange(0, 3).Draw(t, "d"))) },
			"deadline": func(*rapid.T) { lapse(); m.deadline = c.now() + 10; g.SetDeadline(m.deadline) },
			"expire":   func(*rapid.T) { lapse(); g.Expire() },
			"review": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				settle(s)
				g.Review(set(s))
			},
			"open": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				lapse()
				g.Open(set(s), 1)
				late := c.now() >= m.deadline
				m.open[s], m.draining[s], m.idle[s], m.lapsed[s] = !late, false, false, late
				delete(waiting, s)
			},
			"shut": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				g.Shut(set(s))
				m.open[s], m.draining[s], m.idle[s], m.lapsed[s] = false, false, false, false
				delete(waiting, s)
				end(s, gate.ErrLost)
			},
			"drain": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				if m.open[s] {
					m.open[s], m.draining[s] = false, true
				}
				waiting[s], hard[s] = true, false
				settle(s)
				g.Drain(set(s), func(s slot.Slot) bool { return pending[s] }, func(s slot.Slot) { gotIdle[s]++ })
			},
			"pending": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				pending[s] = !pending[s]
				settle(s)
				g.Recheck(s)
			},
			"hold": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				m.inFlight[s]++
				flights[s] = append(flights[s], flight{leave: g.Hold(s)})
			},
			"enter": func(t *rapid.T) {
				s, gone := aSlot.Draw(t, "slot"), rapid.Bool().Draw(t, "gone")
				keys++
				ctx, leave, got := g.Enter(context.Background(), s, key(fmt.Sprint(keys)), gone)
				late := c.now() >= m.deadline
				want := gate.Refused
				switch owned := m.open[s] || m.draining[s] || m.idle[s]; {
				case m.lapsed[s], owned && late:
					want = gate.Expired
				case m.open[s], m.draining[s] && (gone || !hard[s]):
					want = gate.Admitted
				case owned:
					want = gate.Parked
				}
				if got != want {
					t.Fatalf("slot %v: %v, want %v", s, got, want)
				}
				if got == gate.Admitted {
					m.inFlight[s]++
					flights[s] = append(flights[s], flight{ctx, key(fmt.Sprint(keys)), leave})
				}
			},
			"leave": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				if n := len(flights[s]); n > 0 {
					m.inFlight[s]--
					settle(s)
					flights[s][n-1].leave()
					flights[s] = flights[s][:n-1]
				}
			},
			"extend": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				n := len(flights[s])
				if n == 0 || flights[s][n-1].ctx == nil {
					return
				}
				ctx, leave, err := gate.Extend(flights[s][n-1].ctx)
				if err != nil {
					t.Fatalf("slot %v: %v", s, err)
				}
				var cause error
				switch owned := m.open[s] || m.draining[s] || m.idle[s]; {
				case !owned && !m.lapsed[s]:
					cause = gate.ErrLost
				case m.lapsed[s], c.now() >= m.deadline:
					cause = gate.ErrExpired
				case !m.open[s] && hard[s]:
					cause = gate.ErrHandover
				}
				if cause != nil {
					m.inFlight[s]++
				}
				tasks[s] = append(tasks[s], &task{flights[s][n-1].key, ctx, leave, cause})
			},
			"deleted": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				if len(tasks[s]) == 0 {
					return
				}
				gone := tasks[s][0].key
				stays := rapid.Bool().Draw(t, "it is there, in this slot")
				g.EndTasks(gone, func(context.Context) bool { return stays })
				for _, one := range tasks[s] {
					if one.key == gone && one.cause == nil && !stays {
						one.cause = gate.ErrDeleted
						m.inFlight[s]++
					}
				}
			},
			"task ends": func(t *rapid.T) {
				s := aSlot.Draw(t, "slot")
				n := len(tasks[s])
				if n == 0 {
					return
				}
				one := tasks[s][n-1]
				tasks[s] = tasks[s][:n-1]
				if one.cause != nil {
					m.inFlight[s]--
					settle(s)
				}
				if again := one.leave(); again != (one.cause != nil && m.open[s]) {
					t.Fatalf("slot %v: again = %v", s, again)
				}
			},
			"": func(t *rapid.T) {
				for s := range slot.Slot(4) {
					if g.InFlightIn(s) != m.inFlight[s] {
						t.Fatalf("slot %v: %d in flight, want %d", s, g.InFlightIn(s), m.inFlight[s])
					}
					for _, one := range tasks[s] {
						if cause := context.Cause(one.ctx); !errors.Is(cause, one.cause) {
							t.Fatalf("slot %v: the task's context has ended with %v, want %v", s, cause, one.cause)
						}
					}
					if gotIdle[s] != expectIdle[s] {
						t.Fatalf("slot %v: idle called %d times, want %d", s, gotIdle[s], expectIdle[s])
					}
				}
			},
		})
	})
}

// TestR6NothingIsAdmittedBetweenIdleAndOpen hands one slot to and fro between the gate and another "owner" while many
// goroutines try to enter; the owner and an admitted key must never meet.
func TestR6NothingIsAdmittedBetweenIdleAndOpen(t *testing.T) {
	g := gate.New(2, func() time.Duration { return 0 })
	g.SetDeadline(time.Second)
	var ours, inside atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, leave, verdict := g.Enter(context.Background(), 1, key("k"), i%2 == 0)
				if verdict != gate.Admitted {
					continue
				}
				inside.Add(1)
				if ours.Load() == 0 && ctx.Err() == nil {
					t.Error("admitted in a slot that was given away")
				}
				inside.Add(-1)
				leave()
			}
		})
	}
	for epoch := range uint64(2000) {
		ours.Store(1)
		g.Open(set(1), epoch+1)
		away := make(chan struct{})
		g.Drain(set(1), never, func(slot.Slot) {
			ours.Store(0)
			if inside.Load() != 0 {
				t.Error("idle while a key is in flight")
			}
			close(away)
		})
		<-away
	}
	close(stop)
	wg.Wait()
	if g.InFlight() != 0 {
		t.Errorf("%d in flight at the end", g.InFlight())
	}
}
