package orders

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Labels are the members' labels, by member, as they report them.
type Labels map[string]string

// text lists them.
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

// Pin pins an object to members that have labels, as table.JoinLabels returns them. It replaces the object's former
// pin. With expect, no such member has to be there.
func Pin(t *table.Table, object, labels string, have Labels, expect bool, by By) error {
	since, user, reason := by.cut()
	pin := table.Pin{Object: object, Labels: labels, Since: since, By: user, Reason: reason}
	if was, has := t.Pinned(object); has && was.Labels == labels {
		return ErrAsItIs
	}
	namespaced := strings.Contains(object, "/")
	switch {
	case t.Key == slot.KeyUID:
		return fmt.Errorf("objects are shared by %s here, so that nobody can tell the slot of a name, and a new object of "+
			"the same name has another one: pins need key %s or %s", t.Key, slot.KeyName, slot.KeyNamespace)
	case strings.Count(object, "/") > 1:
		return fmt.Errorf("%q is no object: give NAMESPACE/NAME, or the name of one without namespace", object)
	case t.Key == slot.KeyNamespace && namespaced:
		namespace, _, _ := strings.Cut(object, "/")
		return fmt.Errorf("objects are shared by %s here, so that all of a namespace are in one slot: pin %s", t.Key,
			namespace)
	}
	t.PutPin(pin)
	if len(t.Pins) > table.MaxPins {
		return fmt.Errorf("there are %d pins, and a table has room for no more: unpin something", table.MaxPins)
	}
	for _, other := range t.Pins {
		if other.Labels != labels && t.SlotOf(other.Object) == t.SlotOf(object) {
			return fmt.Errorf("%s is in slot %d, as is %s, which is pinned to %s: a slot has one owner; unpin that first, or "+
				"pin both alike", object, t.SlotOf(object), other.Object, other.Labels)
		}
	}
	if err := met(t, pin, have); err != nil && !expect {
		return err
	}
	return reads(t)
}

// Unpin takes the pin of an object away.
func Unpin(t *table.Table, object string) error {
	if t.DropPin(object) {
		return nil
	}
	var pinned []string
	for _, p := range t.Pins {
		pinned = append(pinned, p.Object)
	}
	if len(pinned) == 0 {
		return fmt.Errorf("%s is not pinned: nothing is", object)
	}
	return fmt.Errorf("%s is not pinned: what is pinned is %s", object, strings.Join(pinned, ", "))
}

// met says why no member could have the slot of a pin, with the labels that members report.
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
		return fmt.Errorf("no member has the labels %s: %s. Members get labels by --rota-member-labels; if such members are "+
			"yet to come, say --expect", p.Labels, have.text())
	case slices.ContainsFunc(matching, func(id string) bool {
		m, _ := t.Member(id)
		return !m.Leaving && !t.Drained(id)
	}):
		whose := "the other builds'"
		if mine := t.CanarySlots(); mine.Has(t.SlotOf(p.Object)) {
			whose = "the canary's"
		}
		return fmt.Errorf("slot %d of %s is %s, and of the members that have the labels %s none may have it: %s; pin it to "+
			"others, or say --expect", t.SlotOf(p.Object), p.Object, whose, p.Labels, strings.Join(matching, ", "))
	}
	return fmt.Errorf("all members with the labels %s are drained, or leave: %s; undrain one, or pin %s to others",
		p.Labels, strings.Join(matching, ", "), p.Object)
}
