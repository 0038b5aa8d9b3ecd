package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Reasons of the events that orders emit. docs/troubleshooting.md explains them.
const (
	eventPaused     = "MovesPaused"
	eventResumed    = "MovesResumed"
	eventDrained    = "MemberDrained"
	eventUndrained  = "MemberUndrained"
	eventRebalanced = "Rebalanced"
)

func newPause() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:   "pause [NAME]",
		Short: "Pause moves of slots and duties between live members",
		Long: `Pauses moves of slots and duties between live members. Moves that have begun finish. Slots of members that
leave or die still get new owners, so a rolling update continues. New members get only those slots.

The pause ends with the last member, or when a process of a release without pauses wants to join.`,
		Example: `  rota pause website -n operators --reason "the API server is slow"
  rota pause -n operators --wait`,
		Args: oneName,
		RunE: a.on(a.pause),
	}
	a.bind(cmd)
	a.bindReason(cmd)
	a.bindWait(cmd, "moves that have begun are finished")
	return cmd
}

func (a *actor) pause() error {
	t, changed, err := a.give(orders.Pause, eventPaused, fixed("moves between live members are paused"))
	if err != nil {
		return err
	}
	if !changed {
		a.result("rota %s: moves are paused already, %s", a.rota, sinceBy(t.Pause.Since, t.Pause.By, t.Pause.Reason))
	} else {
		a.result("rota %s: moves are paused", a.rota)
	}
	if !a.wait {
		return nil
	}
	return a.await(func(t *table.Table) (string, bool, error) {
		moving := orders.Moving(t)
		if !t.Paused() {
			return "", false, withCode(exitConflict, fmt.Errorf("rota %s: someone resumed moves meanwhile", a.rota))
		}
		return counted(moving, "slot") + " and duties still moving", moving == 0, nil
	})
}

// sinceBy describes when something began, who requested it, and why.
func sinceBy(since int64, by, reason string) string {
	return "since " + time.Unix(since, 0).Format(time.RFC3339) + prefixed(" by ", by) + prefixed(": ", reason)
}

func newResume() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:     "resume [NAME]",
		Short:   "End a pause of moves",
		Example: `  rota resume website -n operators`,
		Args:    oneName,
		RunE: a.on(func() error {
			_, changed, err := a.give(func(t *table.Table, _ orders.By) error { return orders.Resume(t) },
				eventResumed, fixed("moves between live members resume"))
			switch {
			case err != nil:
				return err
			case changed:
				a.result("rota %s: moves resume", a.rota)
			default:
				a.result("rota %s: moves are not paused", a.rota)
			}
			return nil
		}),
	}
	a.bind(cmd)
	return cmd
}
