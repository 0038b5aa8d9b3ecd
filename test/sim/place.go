package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/slot"
)

// This file has canaries and pins (rule R22).

// Wall is what a clock that is right shows now, in Unix seconds.
func (w *World) Wall() int64 { return epochStart + int64(w.now/time.Second) }

// trial is what a node reports of a canary: of its reconciles since it saw the present step begin.
func (n *Node) trial() *planner.Trial {
	t := n.w.Objects.Table().Table
	if n.w.opts.Trial == nil || t == nil || !t.Canary.On() || t.Canary.Began == 0 || n.Paused || n.Mute {
		return nil
	}
	c := &t.Canary
	begun := time.Duration(c.Began-epochStart) * time.Second
	of := n.w.opts.Trial(n.Replica, max(n.w.now-begun, 0))
	return &planner.Trial{Build: c.Build, Began: c.Began, Step: c.Step, Side: of}
}

// checkPlaces looks at what a member makes of a canary.
func (w *World) checkPlaces(old, t *table.Table) {
	if w.person {
		return
	}
	was, is := &old.Canary, &t.Canary
	if is.On() && !canGoOn(was, is) {
		w.violate("canary", "%s makes of the canary %+v this: %+v", w.writer.ID, *was, *is)
	}
	// One that ends and was not promoted ends with all that a process cannot read of, or with the last member.
	if was.Runs() && !is.On() && len(t.Members) > 0 && len(t.Pins) > 0 {
		w.violate("canary", "%s ends the canary %+v", w.writer.ID, *was)
	}
	if was.On() || len(old.Pins) > 0 {
		w.Coverage.Rules[22]++
	}
	if !was.On() || was.State != table.CanaryPromoted || !is.Same(was) {
		return
	}
	for s := range slot.Slot(t.Slots) {
		from, to := old.At(s), t.At(s)
		owner, _ := t.Member(from.Owner)
		next, ok := t.Member(to.Next)
		begins := ok && to.Next != from.Next && to.Owner == from.Owner && !owner.Leaving && !old.Drained(owner.ID)
		if begins && owner.Build == was.Build && next.Build != was.Build && !w.alone(old, owner) {
			w.violate("canary", "%s begins to move slot %v from %s, of the promoted build, to %s, of build %s", w.writer.ID, s,
				owner.ID, next.ID, next.Build)
		}
	}
}

// alone says that a member has no other of its build that could take slots, as far as the table tells. It may be slow.
func (w *World) alone(t *table.Table, of table.Member) bool {
	for _, m := range t.Members {
		if m.Build == of.Build && !m.Leaving && !t.Drained(m.ID) && !w.probation(t, m) {
			return false
		}
	}
	return true
}

// canGoOn says that members may make one canary of another.
func canGoOn(was, is *table.Canary) bool {
	if was.Build != is.Build || was.Since != is.Since || len(was.Steps) != len(is.Steps) {
		return false
	}
	if is.Same(was) {
		return true
	}
	if was.State != table.CanaryRuns {
		return false
	}
	switch is.State {
	case table.CanaryRuns:
		return was.Began == 0 && is.Step == was.Step || was.Began != 0 && is.Step == was.Step+1 && is.Began == 0
	case table.CanaryPromoted:
		return was.Last() && was.Began != 0 && was.Every > 0
	case table.CanaryBack:
		return is.Verdict != ""
	}
	return false
}

// misplaced says which slot is not where it should be; empty: all is well. Members that are slow, or on probation, may
// leave slots elsewhere.
func (w *World) misplaced(t *table.Table, fair bool) string {
	if t.Paused() || !fair {
		return ""
	}
	c := &t.Canary
	var there [2]bool // others, and members of its build
	for _, m := range t.Members {
		if n := w.live(m.ID); n != nil && len(t.Pins) > 0 && t.Reads(table.PlaceFormat) && m.Labels != n.cfg.Self.Labels {
			return fmt.Sprintf("%s has not announced its labels", m.ID)
		}
		if !t.Drained(m.ID) {
			there[b2i(m.Build == c.Build)] = true
		}
	}
	back := c.On() && c.State == table.CanaryBack
	parted := c.On() && c.State != table.CanaryPromoted && there[0] && (there[1] || back)
	if c.Runs() && c.Began == 0 && there[1] {
		return "the canary has not begun"
	}
	mine, pins := t.CanarySlots(), t.PinsBySlot()
	for s := range slot.Slot(t.Slots) {
		owner, _ := t.Member(t.At(s).Owner)
		fits := func(m table.Member) bool {
			return !t.Drained(m.ID) && (!parted || (m.Build == c.Build) == mine.Has(s))
		}
		if parted && !fits(owner) {
			return fmt.Sprintf("slot %v is with %s, of build %s", s, owner.ID, owner.Build)
		}
		for _, m := range t.Members {
			if labels, pinned := pins[s]; pinned && c.State != table.CanaryPromoted && fits(m) &&
				table.HasLabels(m.Labels, labels) && !table.HasLabels(owner.Labels, labels) {
				return fmt.Sprintf("slot %v is with %s, and %s has the labels %s", s, owner.ID, m.ID, labels)
			}
		}
	}
	return ""
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// drawPlaces decides whether people start canaries and pin objects in this life: in one of four. They have a source of
// chance of their own, so that lives without them stay what they were.
func (c *Chaos) drawPlaces() {
	c.placers = rand.New(rand.NewPCG(c.opts.Seed, 8)) // must be repeatable
	c.places = c.placers.IntN(4) == 0
	if !c.places {
		return
	}
	tune, period := c.opts.Tune, time.Second+time.Duration(c.placers.Int64N(int64(10*time.Second)))
	c.opts.Tune = func(cfg *member.Config) {
		cfg.LoadPeriod = period
		if tune != nil {
			tune(cfg)
		}
	}
	c.opts.Trial = func(r *Replica, since time.Duration) (t trial.Side) {
		bad := (xxhash.Sum64String(r.Build)+c.opts.Seed)%3 == 0
		for i := range min(int(since/(100*time.Millisecond)), 400) {
			t.Add(10*time.Millisecond, 0, bad && i%20 == 0)
		}
		return t
	}
}

// place has people start, promote and end canaries, and pin objects, until faults have ended.
func (c *Chaos) place() {
	if !c.places {
		return
	}
	c.after(200*time.Millisecond+time.Duration(c.placers.Int64N(int64(15*time.Second))), func() {
		if c.over {
			return
		}
		if c.placers.IntN(4) == 0 { // the pods of a canary
			c.build++
			for range 1 + c.placers.IntN(2) {
				c.grow()
			}
		}
		c.tryOrder(c.drawPlace(), 5)
		c.place()
	})
}

// drawPlace chooses what is asked for.
func (c *Chaos) drawPlace() func(*table.Table) {
	since, object := c.Wall(), fmt.Sprintf("a/x%d", c.placers.IntN(8))
	labels := fmt.Sprintf("pool=%d", c.placers.IntN(3))
	build := fmt.Sprintf("v%d", max(c.build+c.placers.IntN(2)-c.placers.IntN(2), 0))
	steps := [][]int{{5, 20, 50, 100}, {10}, {30, 60}, {1, 100}}[c.placers.IntN(4)]
	every := int64(c.placers.IntN(20))
	switch c.placers.IntN(8) {
	case 0, 1, 2:
		return func(t *table.Table) {
			if !t.Canary.Runs() {
				t.Canary = table.Canary{Build: build, Steps: steps, Every: every, Since: since, By: "somebody"}
			}
		}
	case 3:
		return func(t *table.Table) {
			if t.Canary.On() {
				t.Canary.State, t.Canary.Verdict = table.CanaryPromoted, ""
			}
		}
	case 4:
		return func(t *table.Table) {
			if t.Canary.On() {
				t.Canary.State, t.Canary.Verdict = table.CanaryBack, "asked for"
			}
		}
	case 5:
		return func(t *table.Table) { t.DropPin(object) }
	default:
		return func(t *table.Table) {
			t.PutPin(table.Pin{Object: object, Labels: labels, Since: since, By: "somebody"})
		}
	}
}

// giveLabels decides which labels a pod has.
func (c *Chaos) giveLabels(r *Replica) {
	if c.places && c.placers.IntN(3) > 0 {
		r.Labels = fmt.Sprintf("pool=%d", c.placers.IntN(2))
	}
}
