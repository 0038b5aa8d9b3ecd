package explore

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/slot"
)

// canaryBuild is the build of the last pod where people give orders.
const canaryBuild = "v2"

// orders are what people may ask for. Each says whether it changes the table.
var orders = map[string]func(*table.Table) bool{
	"canary": func(t *table.Table) bool {
		t.Canary = table.Canary{Build: canaryBuild, Steps: []int{50, 99}, Since: wall}
		return true
	},
	"step": func(t *table.Table) bool {
		c := &t.Canary
		c.Step++
		return c.On() && c.State == table.CanaryRuns && c.Step < len(c.Steps)
	},
	"promote": func(t *table.Table) bool {
		t.Canary.State = table.CanaryPromoted
		return t.Canary.On()
	},
	"abort": func(t *table.Table) bool {
		t.Canary.State = table.CanaryBack
		return t.Canary.On()
	},
	"pin": func(t *table.Table) bool {
		t.PutPin(table.Pin{Object: "x", Labels: "pod=a", Since: wall})
		return true
	},
	"unpin": func(t *table.Table) bool { return t.DropPin("x") },
}

// ordered is the table after an order, or nil if the order cannot be given now.
func (w *world) ordered(name string) *table.Table {
	s := w.server()
	if s.table.table == nil || s.table.table.UID != tableUID(s.table.uid) || len(s.table.table.Members) == 0 {
		return nil
	}
	t := s.table.table.Clone()
	if !orders[name](t) {
		return nil
	}
	t.Seal(s.table.table.Epoch + 1)
	if t.Valid() != nil {
		return nil
	}
	return t
}

// bad are reports of which the canary's members have failed reconciles only, and the others none.
func (w *world) bad() (out []member.LoadReport) {
	t := w.server().table.table
	if t == nil || !t.Canary.On() {
		return nil
	}
	for _, m := range t.Members {
		r := member.LoadReport{ID: m.ID, Trial: &member.Trial{
			Build: t.Canary.Build, Began: t.Canary.Began, Step: t.Canary.Step,
		}}
		for range trial.Enough {
			r.Trial.Add(time.Millisecond, 0, t.Apart(m))
		}
		out = append(out, r)
	}
	return out
}

// misplaced says which slot is not where a canary or a pin wants it; empty: all is well.
func (w *world) misplaced(t *table.Table) string {
	there := map[bool]bool{} // members of the canary's build, and others
	for _, m := range t.Members {
		there[m.Build == t.Canary.Build] = true
	}
	c := &t.Canary
	mine, pins := t.CanarySlots(), t.PinsBySlot()
	parted := c.On() && c.State != table.CanaryPromoted && there[false] && there[true]
	for s := range slot.Slot(t.Slots) {
		owner, _ := t.Member(t.At(s).Owner)
		if parted && (owner.Build == c.Build) != mine.Has(s) {
			return fmt.Sprintf("slot %d is with %s, and the canary %s", s, owner.ID, c.State)
		}
		for _, m := range t.Members {
			labels, pinned := pins[s]
			if pinned && table.HasLabels(m.Labels, labels) && !table.HasLabels(owner.Labels, labels) {
				return fmt.Sprintf("slot %d is with %s, and %s has the labels %s", s, owner.ID, m.ID, labels)
			}
		}
	}
	return ""
}
