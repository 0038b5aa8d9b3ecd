package rotatest

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
)

// killPoint is a write after which a member is killed.
type killPoint struct {
	of   string // its sort
	left int    // how many of that sort the member may still send, this one included
	at   write  // the one at which it was killed
}

// maxKills is how many members are killed in a phase.
const maxKills = 4

// killPoints chooses from the sorts of writes of a phase, in their order: creations first, since what was created and
// not noted yet is what people lose.
func killPoints(sorts []string, number map[string]int, r *rand.Rand) (points []*killPoint) {
	chosen := map[string]bool{}
	for _, creations := range []bool{true, false} {
		for _, i := range r.Perm(len(sorts)) {
			what := sorts[i]
			if creates := strings.HasPrefix(what, "create ") || strings.HasPrefix(what, "apply "); creates == creations &&
				len(chosen) < maxKills {
				chosen[what] = true
			}
		}
	}
	for _, what := range sorts {
		if chosen[what] {
			points = append(points, &killPoint{of: what, left: 1 + r.IntN(max(1, min(2, number[what]/4)))})
		}
	}
	if len(points) == 1 {
		points = append(points, &killPoint{of: points[0].of, left: 1})
	}
	return points
}

func killAbout(ctx context.Context, r *run, phase string) error {
	points := killPoints(r.kit.sorts[phase].order, r.kit.sorts[phase].number, r.rand)
	fired := 0
	arm := func() {
		for _, m := range r.working() {
			if len(points) > 0 && m.wire.arm(points[0]) {
				points = points[1:]
			}
		}
	}
	defer func() {
		for _, m := range r.working() {
			m.wire.disarm()
		}
	}()
	total := len(points)
	arm()
	for fired < total {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case dead := <-r.kills:
			fired++
			p := dead.wire.disarm()
			r.tell("%s was killed after: %s", dead.name, p.at)
			// Its container is restarted, or its node is lost, and there is a new Pod.
			predecessor := dead
			if dead.restarted {
				predecessor = nil
			}
			if err := r.newMember(predecessor); err != nil {
				return err
			}
			arm()
		case <-time.After(50 * time.Millisecond):
			if err := r.revive(); err != nil {
				return r.withNotes(err)
			}
			arm()
			// What has not come by now does not come.
			if waits, err := r.unshared(ctx); err != nil || waits != "" || r.record.quiet() < r.quiet() {
				continue
			}
			return nil
		}
	}
	return nil
}
