package rotatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
)

// unshared describes what keeps the members from sharing all slots, empty once each slot has one working owner.
func (r *run) unshared(context.Context) (string, error) {
	members := r.working()
	if len(members) == 0 {
		return "there are no members", nil
	}
	for s := range members[0].slots {
		owners := 0
		for _, m := range members {
			if m.owns(s) {
				owners++
			}
		}
		if owners != 1 {
			for _, m := range members {
				if waits := m.waits(); waits != nil {
					return waits.Error(), nil //nolint:nilerr // it describes the wait
				}
			}
			return fmt.Sprintf("slot %d has %d owners", s, owners), nil
		}
	}
	for _, m := range members {
		n := 0
		for s := range m.slots {
			if m.owns(s) {
				n++
			}
		}
		if idle := n == 0; idle != m.drained.Load() {
			return fmt.Sprintf("%s has %d slots", m.name, n), nil
		}
	}
	return "", nil
}

func slotOf(s int) slot.Slot { return slot.Slot(s) }

// quiet returns how long an operator that has settled writes nothing.
func (r *run) quiet() time.Duration {
	if r.fault.lags {
		return r.kit.o.Quiet + maxLag
	}
	return r.kit.o.Quiet
}

// backoff is how long a failing reconcile may wait until it is tried again.
const backoff = 15 * time.Second

// unsettled describes why the operator has not settled.
func (r *run) unsettled(ctx context.Context) (string, error) {
	if waits, err := r.unshared(ctx); waits != "" || err != nil {
		return waits, err
	}
	quiet := r.record.quiet()
	if quiet < r.quiet() {
		return "the operator writes", nil
	}
	if waits := r.reconciles.restless(r.quiet()); waits != "" {
		return waits, nil
	}
	if failing := r.reconciles.failures(); failing != "" && quiet < backoff {
		return failing, nil
	}
	if left, err := r.undeleted(ctx); left != "" || err != nil {
		return left, err
	}
	if r.kit.o.Settled == nil {
		return "", nil
	}
	ok := false
	if err := callback(ctx, "Options.Settled", func() (err error) {
		ok, err = r.kit.o.Settled(ctx, r.client)
		return err
	}); err != nil {
		return "", err
	}
	if !ok {
		return "Options.Settled says that it has not", nil
	}
	return "", nil
}

// defaultPatience bounds a wait. It only has to be longer than an operator on a slow machine takes.
const defaultPatience = time.Minute

// await waits until waits returns "". Meanwhile it restarts members whose managers have ended.
func (r *run) await(ctx context.Context, what string, waits func(context.Context) (string, error)) error {
	return r.awaitFor(ctx, r.kit.patience+r.quiet(), what, waits)
}

func (r *run) awaitFor(ctx context.Context, patience time.Duration, what string,
	waits func(context.Context) (string, error),
) error {
	limit := time.Now().Add(patience)
	for {
		if err := r.guard.err(); err != nil {
			return err
		}
		r.reconciles.forget()
		reason, err := waits(ctx)
		if err == nil {
			err = r.revive(ctx)
		}
		switch {
		case err != nil:
			return r.withNotes(err)
		case reason == "":
			return nil
		case ctx.Err() != nil:
			return r.withNotes(fmt.Errorf("%w while waiting until %s: %s", context.Cause(ctx), what, reason))
		case time.Now().After(limit):
			return r.withNotes(r.overdue(patience, what, reason))
		}
		_ = await.Sleep(ctx, 50*time.Millisecond) // the next check returns ctx's error
	}
}

// overdue describes what happens instead of the awaited condition.
func (r *run) overdue(waited time.Duration, what, reason string) error {
	text := fmt.Sprintf("waited %v until %s: %s", waited, what, reason)
	if hot := r.record.hot(hotTime); hot != "" {
		text += fmt.Sprintf("\nWithin the last %v these objects were written again and again (a reconcile that writes each "+
			"time that it runs wakes itself up):\n%s", hotTime, indent(hot))
	}
	if failing := r.reconciles.failures(); failing != "" && failing != reason {
		text += "\n" + failing
	}
	return errors.New(text)
}

const hotTime = 10 * time.Second
