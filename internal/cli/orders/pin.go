package orders

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Labels maps members to the labels that they report.
type Labels map[string]string

func (l Labels) text() string {
	out := make([]string, 0, len(l))
	for _, id := range slices.Sorted(maps.Keys(l)) {
		labels := l[id]
		if labels == "" {
			labels = "none"
		}
		out = append(out, id+": "+labels)
	}
	if len(out) == 0 {
		return "there are no members"
	}
	return "the members' labels are " + strings.Join(out, "; ")
}

// Pin pins an object to members with labels, in the format of table.JoinLabels. It replaces the object's existing pin.
// With expect, there need not be such a member.
func Pin(t *table.Table, object, labels string, have Labels, expect bool, by By) error {
	since, user, reason := by.cut()
	pin := table.Pin{Object: object, Labels: labels, Since: since, By: user, Reason: reason}
	if was, has := t.Pinned(object); has && was.Labels == labels {
		return ErrNoChange
	}
	namespaced := strings.Contains(object, "/")
	switch {
	case t.Key == slot.KeyUID:
		return fmt.Errorf("this rota shards by %s, so a name does not determine the slot, and a new object with the same "+
			"name gets another one: pins need key %s or %s", t.Key, slot.KeyName, slot.KeyNamespace)
	case strings.Count(object, "/") > 1:
		return fmt.Errorf("%q is not an object: give NAMESPACE/NAME, or the name of a cluster-scoped object", object)
	case t.Key == slot.KeyNamespace && namespaced:
		namespace, _, _ := strings.Cut(object, "/")
		return fmt.Errorf("this rota shards by %s, so all objects of a namespace are in one slot: pin %s", t.Key,
			namespace)
	}
	t.PutPin(pin)
	if len(t.Pins) > table.MaxPins {
		return fmt.Errorf("there are %d pins, the most that a table can hold: unpin something", table.MaxPins)
	}
	for _, other := range t.Pins {
		if other.Labels != labels && t.SlotOf(other.Object) == t.SlotOf(object) {
			return fmt.Errorf("%s is in slot %d, as is %s, which is pinned to %s: a slot has one owner; unpin that first, or "+
				"pin both to the same labels", object, t.SlotOf(object), other.Object, other.Labels)
		}
	}
	if err := met(t, pin, have); err != nil && !expect {
		return err
	}
	return checkReaders(t)
}

// Unpin removes the pin of an object.
func Unpin(t *table.Table, object string) error {
	if t.DropPin(object) {
		return nil
	}
	var pinned []string
	for _, p := range t.Pins {
		pinned = append(pinned, p.Object)
	}
	if len(pinned) == 0 {
		return fmt.Errorf("%s is not pinned: there are no pins", object)
	}
	return fmt.Errorf("%s is not pinned: the pins are %s", object, strings.Join(pinned, ", "))
}

// met returns why no member could own the pinned slot, given the members' labels.
func met(t *table.Table, p table.Pin, have Labels) error {
	with := t.Clone()
	var matching []string
	for i := range with.Members {
		m := &with.Members[i]
		if m.Labels = have[m.ID]; table.HasLabels(m.Labels, p.Labels) {
			matching = append(matching, m.ID)
		}
	}
	switch {
	case !slices.ContainsFunc(with.UnmetPins(), func(other table.Pin) bool { return other.Object == p.Object }):
		return nil
	case len(matching) == 0:
		return fmt.Errorf("no member has the labels %s: %s. Members get labels from --rota-member-labels; use --expect if "+
			"such members will start later", p.Labels, have.text())
	case slices.ContainsFunc(matching, func(id string) bool {
		m, _ := t.Member(id)
		return !m.Leaving && !t.Drained(id)
	}):
		whose := "the other builds'"
		if mine := t.CanarySlots(); mine.Has(t.SlotOf(p.Object)) {
			whose = "the canary's"
		}
		return fmt.Errorf("slot %d of %s is %s, and no member with the labels %s may own it: %s; pin it to "+
			"others, or use --expect", t.SlotOf(p.Object), p.Object, whose, p.Labels, strings.Join(matching, ", "))
	}
	return fmt.Errorf("all members with the labels %s are drained or leaving: %s; undrain one, or pin %s to others",
		p.Labels, strings.Join(matching, ", "), p.Object)
}
