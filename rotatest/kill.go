package rotatest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// killPoint is a write after which its member is killed, whichever member that is.
type killPoint struct {
	of   string // the sort of the write
	left int    // how many writes of that sort the members may still make, including the fatal one
}

// death is the death of a member after a write.
type death struct {
	of *member
	at write
}

// killer kills members at points.
type killer struct {
	mu     sync.Mutex
	points []*killPoint // not reached yet
	deaths []death      // without a successor yet
	number int          // of all deaths
}

func (k *killer) arm(points []*killPoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.points = points
}

// disarm ends the killing. It returns the points that were not reached, and the deaths since the last call of next.
func (k *killer) disarm() (missed []*killPoint, deaths []death) {
	k.mu.Lock()
	defer k.mu.Unlock()
	missed, deaths = k.points, k.deaths
	k.points, k.deaths = nil, nil
	return missed, deaths
}

// next returns the deaths since its last call, and whether there are points left.
func (k *killer) next() (deaths []death, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	deaths, k.deaths = k.deaths, nil
	return deaths, len(k.points) > 0
}

// kills reports whether a write kills its member, which a write does only once. If m is nil, it reports whether the
// write is at a point, and no member is killed.
func (k *killer) kills(m *member, done write) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.points, func(p *killPoint) bool { return p.of == done.what() })
	if i < 0 || m != nil && m.isKilled() {
		return false
	}
	if k.points[i].left--; k.points[i].left > 0 {
		return false
	}
	k.points = slices.Delete(k.points, i, i+1)
	k.number++
	if m != nil {
		k.deaths = append(k.deaths, death{m, done})
		m.killed.Store(true)
	}
	return true
}

// total returns how many members were killed, or how many writes were answered by a timeout.
func (k *killer) total() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.number
}

// maxKills is how many members are killed in a phase.
const maxKills = 4

// killPoints chooses kill points from the sorts of writes of a phase, in their order. Creations come first, since
// objects that were created but not recorded in a status are what operators lose.
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
	r.killer.arm(killPoints(r.kit.sorts[phase].order, r.kit.sorts[phase].number, r.rand))
	err := r.killUntilSettled(ctx)
	missed, deaths := r.killer.disarm()
	var sorts []string
	for _, p := range missed {
		sorts = append(sorts, p.of)
	}
	sorts = slices.Compact(sorts) // they are sorted
	if len(sorts) > 0 {
		r.notef("%s in phase %q after: %s", r.fault.missed(), phase, strings.Join(sorts, ", "))
	}
	return errors.Join(err, r.succeed(ctx, deaths))
}

// killUntilSettled replaces members that die, until the operator has settled.
func (r *run) killUntilSettled(ctx context.Context) error {
	for limit := time.Now().Add(r.kit.patience + r.quiet()); time.Now().Before(limit); {
		deaths, more := r.killer.next()
		if err := r.succeed(ctx, deaths); err != nil || !more {
			return err
		}
		if err := r.revive(ctx); err != nil {
			return r.withNotes(err)
		}
		if !r.changing.Load() { // a point that was not reached when the operator has settled will not be reached
			if waits, err := r.unsettled(ctx); err != nil || waits == "" {
				return err
			}
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil // the caller waits until the operator has settled and reports why not
}

// succeed starts a successor for each dead member. Either the container is restarted, or the node is lost and there is
// a new Pod.
func (r *run) succeed(ctx context.Context, deaths []death) error {
	for _, d := range deaths {
		r.notef("%s was killed after: %s", d.of.name, d.at)
		predecessor := d.of
		if predecessor.restarted {
			predecessor = nil
		}
		if err := r.newMember(ctx, predecessor); err != nil {
			return err
		}
	}
	return nil
}
