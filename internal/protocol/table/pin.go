package table

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/slot"
)

// MaxPins is how many pins a table may have.
const MaxPins = 200

// Pin says that people want the slot of an object to be with members that have certain labels (rule R22).
type Pin struct {
	// Object is "namespace/name", or the name of an object without namespace; with slot.KeyNamespace, a namespace.
	Object string
	// Labels are those that its member should have, all of them, as in Member.Labels.
	Labels string
	// Since, By and Reason are as in Pause.
	Since      int64
	By, Reason string
}

// JoinLabels returns labels as Member.Labels and Pin.Labels have them: "a=1,b=2", by rising name.
func JoinLabels(labels map[string]string) string {
	out := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+labels[name])
	}
	return strings.Join(out, ",")
}

// HasLabels says whether labels, as Member.Labels has them, have all of those wanted.
func HasLabels(labels, wanted string) bool {
	for one := range strings.SplitSeq(wanted, ",") {
		if !slices.Contains(strings.Split(labels, ","), one) {
			return false
		}
	}
	return true
}

// ValidLabels checks labels as JoinLabels returns them; empty ones are none.
func ValidLabels(labels string) error {
	if labels == "" {
		return nil
	}
	if len(labels) > MaxLabels {
		return fmt.Errorf("labels take %d bytes: at most %d", len(labels), MaxLabels)
	}
	last := ""
	for one := range strings.SplitSeq(labels, ",") {
		name, value, ok := strings.Cut(one, "=")
		switch {
		case !ok || !isWord(name) || value != "" && !isWord(value) || strings.Contains(value, "="):
			return fmt.Errorf("label %q: want name=value, without spaces, commas and other signs of equality", one)
		case name <= last:
			return fmt.Errorf("label %s: not in order, or there twice", name)
		}
		last = name
	}
	return nil
}

// MaxLabels is how long the labels of a member may be, in bytes.
const MaxLabels = 512

// Pinned returns the pin of that object.
func (t *Table) Pinned(object string) (Pin, bool) {
	if i, has := t.findPin(object); has {
		return t.Pins[i], true
	}
	return Pin{}, false
}

func (t *Table) findPin(object string) (int, bool) {
	return slices.BinarySearchFunc(t.Pins, object, func(p Pin, object string) int { return cmp.Compare(p.Object, object) })
}

// PutPin adds a pin, or replaces that of the same object.
func (t *Table) PutPin(p Pin) {
	i, has := t.findPin(p.Object)
	t.Pins = slices.Clone(t.Pins)
	if has {
		t.Pins[i] = p
		return
	}
	t.Pins = slices.Insert(t.Pins, i, p)
}

// DropPin takes the pin of an object away. It says whether there was one.
func (t *Table) DropPin(object string) bool {
	i, has := t.findPin(object)
	if has {
		t.Pins = slices.Delete(slices.Clone(t.Pins), i, i+1)
	}
	return has
}

// PinsBySlot returns the labels that the member of each slot should have. Of pins that want different ones in one slot,
// the first counts, by the objects' names.
func (t *Table) PinsBySlot() map[slot.Slot]string {
	out := map[slot.Slot]string{}
	for _, p := range t.Pins {
		if s := t.SlotOf(p.Object); out[s] == "" {
			out[s] = p.Labels
		}
	}
	return out
}

// UnmetPins returns the pins of which no member is there that could have the slot: one that has the labels, does not
// leave, is not drained, and that a canary lets have it.
func (t *Table) UnmetPins() (out []Pin) {
	if len(t.Pins) == 0 {
		return nil
	}
	mine := t.CanarySlots()
	var apart, others bool
	for _, m := range t.Members {
		if t.stays(m) {
			apart, others = apart || t.Apart(m), others || !t.Apart(m)
		}
	}
	for _, p := range t.Pins {
		parted, in := apart && others, mine.Has(t.SlotOf(p.Object))
		if !slices.ContainsFunc(t.Members, func(m Member) bool {
			return t.stays(m) && HasLabels(m.Labels, p.Labels) && (!parted || t.Apart(m) == in)
		}) {
			out = append(out, p)
		}
	}
	return out
}

// stays says that a member can keep slots.
func (t *Table) stays(m Member) bool { return !m.Leaving && !t.Drained(m.ID) }

// dropLabels forgets the labels of members when no pin asks for any.
func (t *Table) dropLabels() {
	if len(t.Pins) > 0 && t.Reads(PlaceFormat) {
		return
	}
	for i := range t.Members {
		t.Members[i].Labels = ""
	}
}

// labeled says whether the table has labels of members.
func (t *Table) labeled() bool {
	return slices.ContainsFunc(t.Members, func(m Member) bool { return m.Labels != "" })
}

func (t *Table) validPins() error {
	if len(t.Pins) > MaxPins {
		return fmt.Errorf("%d pins: at most %d", len(t.Pins), MaxPins)
	}
	for i, p := range t.Pins {
		if err := validOrder(p.Since, p.By, p.Reason); err != nil {
			return fmt.Errorf("pin of %s: %w", p.Object, err)
		}
		namespace, name, namespaced := strings.Cut(p.Object, "/")
		switch {
		case t.Key == slot.KeyUID:
			return fmt.Errorf("pin of %s: objects are sharded by UID, so nobody knows the slot of a name", p.Object)
		case !isName(namespace) || namespaced && !isName(name) || namespaced && t.Key == slot.KeyNamespace:
			return fmt.Errorf("pin of %q: want namespace/name, a name without namespace, or, with the key %v, a namespace",
				p.Object, slot.KeyNamespace)
		case i > 0 && t.Pins[i-1].Object >= p.Object:
			return fmt.Errorf("pin of %s: not in order after %s", p.Object, t.Pins[i-1].Object)
		case p.Labels == "":
			return fmt.Errorf("pin of %s: it asks for no label", p.Object)
		}
		if err := ValidLabels(p.Labels); err != nil {
			return fmt.Errorf("pin of %s: %w", p.Object, err)
		}
	}
	return nil
}

// encodePins writes a line for each pin.
func encodePins(t *Table) string {
	var out strings.Builder
	for _, p := range t.Pins {
		fmt.Fprintf(&out, "%s %s %d", p.Object, p.Labels, p.Since)
		endOrder(&out, p.By, p.Reason)
	}
	return out.String()
}

// readPin is the inverse of a line of encodePins.
func (t *Table) readPin(w []string) (err error) {
	const columns = 3
	if len(w) <= columns {
		return fmt.Errorf("%q: want object labels since by [reason]", strings.Join(w, " "))
	}
	p := Pin{Object: w[0], Labels: w[1]}
	if p.Since, err = parseSince(w[2]); err != nil {
		return err
	}
	p.By, p.Reason, err = readOrderEnd(w[columns:])
	t.Pins = append(t.Pins, p)
	return err
}

// encodeLabels writes a line for each member that has labels.
func encodeLabels(t *Table, a *abbreviations) string {
	var out strings.Builder
	for _, m := range t.Members {
		if m.Labels != "" {
			fmt.Fprintf(&out, "%s %s\n", a.name(m.ID), m.Labels)
		}
	}
	return out.String()
}

// readLabels is the inverse of a line of encodeLabels. The members are there.
func (t *Table) readLabels(w []string, a *abbreviations) error {
	if len(w) != 2 {
		return fmt.Errorf("%q: want ID labels", strings.Join(w, " "))
	}
	id, err := a.expand(w[0])
	if err != nil {
		return err
	}
	i, ok := t.find(id)
	if !ok {
		return fmt.Errorf("%s is not a member", id)
	}
	t.Members[i].Labels = w[1]
	return nil
}

// pinSize is how many bytes of the table's text pins and labels take, at most.
func (t *Table) pinSize() (size int) {
	for i := range t.Pins {
		p := &t.Pins[i]
		size += len(p.Object) + len(p.Labels) + 3*(len(p.By)+len(p.Reason)) + 48
	}
	for i := range t.Members {
		if m := &t.Members[i]; m.Labels != "" {
			size += len(m.ID) + len(m.Labels) + 2
		}
	}
	return size
}
