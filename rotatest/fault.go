package rotatest

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// fault is what a run does to the members.
type fault struct {
	name, what string
	// alone is true for the run with one member. In the others, lags delays watches, kills ends members, and timesOut
	// answers writes with a timeout.
	alone, lags, kills, timesOut bool
	// disturb runs during a phase, while the user's changes are made. It returns when it leaves the members alone.
	disturb func(ctx context.Context, r *run, phase string) error
}

// missed is the note if the fault did not happen.
func (f *fault) missed() string {
	if f.timesOut {
		return "no write was answered by a timeout"
	}
	return "no member was killed"
}

func undisturbed(context.Context, *run, string) error { return nil }

var reference = &fault{name: "reference", what: "one member works alone", alone: true, disturb: undisturbed}

// faults are tried in this order: a later one is worse.
var faults = []*fault{
	{name: "share", what: "two members share the objects, and nothing disturbs them", disturb: undisturbed},
	{name: "moves", what: "slots move between members while they work", disturb: moveAbout},
	{name: "lag", what: "watches bring everything up to 1.5 s late, each by another time, and slots move",
		lags: true, disturb: moveOnce},
	{name: "timeout", what: "writes are answered by a timeout (504) although they were done, or are not done",
		kills: true, timesOut: true, disturb: killAbout},
	{name: "kill", what: "members are killed between two writes, and others take over",
		kills: true, disturb: killAbout},
}

func moveAbout(ctx context.Context, r *run, phase string) error {
	if err := r.begun(ctx); err != nil {
		return err
	}
	if phase != changing {
		if err := r.drainAndFill(ctx); err != nil {
			return err
		}
	}
	if phase != deleting {
		return r.replaceOldest(ctx)
	}
	return nil
}

func moveOnce(ctx context.Context, r *run, phase string) error {
	if phase != creating {
		return nil // moves take long while watches lag
	}
	if err := r.begun(ctx); err != nil {
		return err
	}
	return r.drainAndFill(ctx)
}

// replaceOldest makes a member join and the oldest one leave, so that objects move to a process with no state.
func (r *run) replaceOldest(ctx context.Context) error {
	oldest := r.working()[0]
	if err := r.newMember(ctx, nil); err != nil {
		return err
	}
	if err := r.await(ctx, "the new member has its share", r.unshared); err != nil {
		return err
	}
	r.pause(ctx)
	r.notef("a new member joined, and %s left", oldest.name)
	if err := oldest.leave(); err != nil {
		return err
	}
	return r.await(ctx, "the others have the slots of the one that left", r.unshared)
}

// begun waits until a member has written something in this phase, or for a limited time.
func (r *run) begun(ctx context.Context) error {
	for limit := time.Now().Add(time.Second); time.Now().Before(limit); {
		if r.record.begun() {
			break
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for a short time, chosen by the seed.
func (r *run) pause(ctx context.Context) {
	_ = sleep(ctx, time.Duration(r.rand.Int64N(int64(300*time.Millisecond))))
}

// sleep returns nil after d, or ctx's cause if ctx ends first, which names the timeout that has passed.
func sleep(ctx context.Context, d time.Duration) error {
	if await.Sleep(ctx, d) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// drainAndFill makes each member give all its slots away and get some back, so that objects return to a process that
// had them before.
func (r *run) drainAndFill(ctx context.Context) error {
	members := r.working()
	for _, i := range r.rand.Perm(len(members)) {
		m := members[i]
		if m.ended() {
			continue // it is restarted
		}
		for _, drained := range []bool{true, false} {
			if err := r.order(ctx, m, drained); err != nil {
				return err
			}
			if err := r.await(ctx, "the slots have moved", r.unshared); err != nil {
				return err
			}
			r.pause(ctx)
		}
	}
	return nil
}

// order drains a member, or ends its drain.
func (r *run) order(ctx context.Context, m *member, drained bool) error {
	_, _, err := orders.Give(ctx, r.kit.store, func(context.Context) (map[string]uint64, error) { return nil, nil },
		func(t *table.Table) error {
			by := orders.By{At: time.Now(), User: rotaName}
			if drained {
				return orders.Drain(t, m.rota.ID(), by)
			}
			_, err := orders.Undrain(t, m.rota.ID())
			return err
		})
	if err != nil {
		return fmt.Errorf("move the slots of %s: %w", m.name, err)
	}
	m.drained.Store(drained)
	if drained {
		r.notef("%s gave all its slots to the other, and then got some back", m.name)
	}
	return nil
}
