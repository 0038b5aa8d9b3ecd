package table

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/slot"
)

// MaxPins is the highest number of pins in a table.
const MaxPins = 200

// Pin is an order to keep the slot of an object with members that have certain labels (rule R22).
type Pin struct {
	// Object is "namespace/name", or the name of a cluster-scoped object, or, with slot.KeyNamespace, a namespace.
	Object string
	// Labels are the labels that the slot's owner must have, in the form of Member.Labels.
	Labels string
	// Since, By and Reason are as in Pause.
	Since      int64
	By, Reason string
}

// JoinLabels returns labels in the form of Member.Labels and Pin.Labels: "a=1,b=2", sorted by name.
func JoinLabels(labels map[string]string) string {
	out := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+labels[name])
	}
	return strings.Join(out, ",")
}

// HasLabels reports whether labels, in the form of Member.Labels, contains all wanted labels.
func HasLabels(labels, wanted string) bool {
	for one := range strings.SplitSeq(wanted, ",") {
		if !slices.Contains(strings.Split(labels, ","), one) {
			return false
		}
	}
	return true
}

// ValidLabels checks labels in the form that JoinLabels returns. No labels are valid.
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
			return fmt.Errorf("label %q: want name=value, without spaces, commas and further equals signs", one)
		case name <= last:
			return fmt.Errorf("label %s: not in order, or listed twice", name)
		}
		last = name
	}
	return nil
}

// MaxLabels is the longest text of a member's labels, in bytes.
const MaxLabels = 512

// Pinned returns the pin of an object.
func (t *Table) Pinned(object string) (Pin, bool) {
	if i, has := t.findPin(object); has {
		return t.Pins[i], true
	}
	return Pin{}, false
}

func (t *Table) findPin(object string) (int, bool) {
	return slices.BinarySearchFunc(t.Pins, object, func(p Pin, object string) int { return cmp.Compare(p.Object, object) })
}

// PutPin adds a pin, or replaces the object's pin.
func (t *Table) PutPin(p Pin) {
	i, has := t.findPin(p.Object)
	t.Pins = slices.Clone(t.Pins)
	if has {
		t.Pins[i] = p
		return
	}
	t.Pins = slices.Insert(t.Pins, i, p)
}

// DropPin removes the pin of an object. It reports whether there was one.
func (t *Table) DropPin(object string) bool {
	i, has := t.findPin(object)
	if has {
		t.Pins = slices.Delete(slices.Clone(t.Pins), i, i+1)
	}
	return has
}

// PinsBySlot returns the labels that the owner of each pinned slot must have. If pins of one slot differ, the pin whose
// object has the first name counts.
func (t *Table) PinsBySlot() map[slot.Slot]string {
	out := map[slot.Slot]string{}
	for _, p := range t.Pins {
		if s := t.SlotOf(p.Object); out[s] == "" {
			out[s] = p.Labels
		}
	}
	return out
}

// UnmetPins returns the pins that no member can satisfy. The member must have the labels, must be neither leaving nor
// drained, and a canary must allow it to have the slot.
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

// stays reports whether a member can keep slots.
func (t *Table) stays(m Member) bool { return !m.Leaving && !t.Drained(m.ID) }

// dropLabels removes the members' labels if there are no pins.
func (t *Table) dropLabels() {
	if len(t.Pins) > 0 && t.Reads(PlaceFormat) {
		return
	}
	for i := range t.Members {
		t.Members[i].Labels = ""
	}
}

// labeled reports whether any member has labels.
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
			return fmt.Errorf("pin of %s: objects are sharded by UID, so the slot of a name is unknown", p.Object)
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

func encodePins(t *Table) string {
	var out strings.Builder
	for _, p := range t.Pins {
		fmt.Fprintf(&out, "%s %s %d", p.Object, p.Labels, p.Since)
		endOrder(&out, p.By, p.Reason)
	}
	return out.String()
}

// readPin parses a line of encodePins.
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

func encodeLabels(t *Table, a *abbreviations) string {
	var out strings.Builder
	for _, m := range t.Members {
		if m.Labels != "" {
			fmt.Fprintf(&out, "%s %s\n", a.name(m.ID), m.Labels)
		}
	}
	return out.String()
}

// readLabels parses a line of encodeLabels. The members must have been read before.
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

// pinSize returns an upper bound for the size of pins and labels in the table's text, in bytes.
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
