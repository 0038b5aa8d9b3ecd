package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Reasons of the events that orders leave. docs/troubleshooting.md says what they mean.
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
		Long: `Pauses moves of slots and duties between live members. Moves that have begun end. Slots of members that leave
or die still get new owners, so a rolling update goes on. Members that join get only those.

The pause ends with the last member, or when a process of a release that does not know pauses wants to join.`,
		Example: `  rota pause website -n operators --reason "the API server is slow"
  rota pause -n operators --wait`,
		Args: oneName,
		RunE: a.on(a.pause),
	}
	a.bind(cmd)
	a.bindReason(cmd)
	a.bindWait(cmd, "the moves that have begun are over")
	return cmd
}

func (a *actor) pause() error {
	t, changed, err := a.give(orders.Pause, eventPaused, says("moves between live members are paused"))
	if err != nil {
		return err
	}
	if !changed {
		a.tell("rota %s: moves are paused already, %s", a.rota, sinceBy(t.Pause.Since, t.Pause.By, t.Pause.Reason))
	} else {
		a.tell("rota %s: moves are paused", a.rota)
	}
	if !a.wait {
		return nil
	}
	return a.await(func(t *table.Table) (string, bool, error) {
		moving := orders.Moving(t)
		if !t.Paused() {
			return "", false, withCode(exitConflict, fmt.Errorf("rota %s: somebody resumed moves meanwhile", a.rota))
		}
		return counted(moving, "slot") + " and duties moving yet", moving == 0, nil
	})
}

// sinceBy says since when something has been so, who asked for it, and why.
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
				eventResumed, says("moves between live members go on"))
			switch {
			case err != nil:
				return err
			case changed:
				a.tell("rota %s: moves go on", a.rota)
			default:
				a.tell("rota %s: moves are not paused", a.rota)
			}
			return nil
		}),
	}
	a.bind(cmd)
	return cmd
}
