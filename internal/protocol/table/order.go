package table

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxOrderText is the longest text of By and of Reason in an order, in bytes.
const MaxOrderText = 256

// Pause is an order to pause moves between live members (rule R19). The zero value is no pause.
type Pause struct {
	// Since is when people asked, in Unix seconds by the clock of their machine. It is 0 if moves are not paused.
	Since int64
	// By is the user who asked, in at most 256 bytes. Reason is why, in at most 256 bytes with single spaces. Both may be
	// empty.
	By, Reason string
}

// Drain is an order for a member to give up its slots and duties and to get none (rule R19). It applies to a container:
// the container's next process gets the same drain.
type Drain struct {
	// ID is the member's ID.
	ID string
	// Pod, PodUID and Container identify the member's container, so that its next process is recognized.
	Pod, PodUID, Container string
	// Since, By and Reason are as in Pause.
	Since      int64
	By, Reason string
	// Lost is when the member was expelled, in Unix seconds by the wall clock of the member that expelled it. Its
	// container may come back. It is 0 if the member was not expelled.
	Lost int64
}

// Paused reports whether moves between live members are paused.
func (t *Table) Paused() bool { return t.Pause.Since != 0 }

// Ordered reports whether there is an order: a pause, a drain, a canary or a pin.
func (t *Table) Ordered() bool { return t.held() || t.placed() }

// held reports whether the table has orders that need OrderFormat.
func (t *Table) held() bool { return t.Paused() || len(t.Drains) > 0 }

// placed reports whether the table has orders that need PlaceFormat.
func (t *Table) placed() bool { return t.Canary.On() || len(t.Pins) > 0 }

// Needs returns the lowest format that can express the table. Pins alone do not count while the table has no members:
// an older program may drop them.
func (t *Table) Needs() int {
	switch {
	case t.Canary.On() || t.labeled() || len(t.Pins) > 0 && len(t.Members) > 0:
		return PlaceFormat
	case t.held():
		return OrderFormat
	case len(t.Duties) > 0:
		return DutyFormat
	case len(t.Gone) > 0:
		return GoneFormat
	}
	return OldestFormat
}

// Drained reports whether people drained the member.
func (t *Table) Drained(id string) bool {
	_, ok := t.findDrain(id)
	return ok
}

func (t *Table) findDrain(id string) (int, bool) {
	return slices.BinarySearchFunc(t.Drains, id, func(d Drain, id string) int { return cmp.Compare(d.ID, id) })
}

// NotReading returns the members that do not read tables of the given format.
func (t *Table) NotReading(format int) (members []Member) {
	for _, m := range t.Members {
		if m.MaxFormat < format || m.MinFormat > format {
			members = append(members, m)
		}
	}
	return members
}

// PutDrain drains a member, or replaces its drain. It does nothing if there is no such member.
func (t *Table) PutDrain(id string, since int64, by, reason string) {
	m, ok := t.Member(id)
	if !ok {
		return
	}
	t.putDrain(Drain{
		ID: m.ID, Pod: m.Pod, PodUID: m.PodUID, Container: m.Container, Since: since, By: by, Reason: reason,
	})
}

func (t *Table) putDrain(d Drain) {
	i, has := t.findDrain(d.ID)
	if has {
		t.Drains[i] = d
		return
	}
	t.Drains = slices.Insert(t.Drains, i, d)
}

// DropDrain removes the drain of one ID. It reports whether there was one.
func (t *Table) DropDrain(id string) bool {
	i, has := t.findDrain(id)
	if has {
		t.Drains = slices.Delete(t.Drains, i, i+1)
	}
	return has
}

// Undrain removes the drain of a member, and drains of earlier processes of its container, which its next process would
// get. Outside a cluster, live members with the same Pod name keep their drains. The ID may be an expelled member's.
// Undrain reports whether there was a drain.
func (t *Table) Undrain(id string) bool {
	m, ok := t.Member(id)
	of := Drain{Pod: m.Pod, PodUID: m.PodUID, Container: m.Container}
	if i, has := t.findDrain(id); has {
		of, ok = t.Drains[i], true
	}
	if !ok {
		return false
	}
	before := len(t.Drains)
	t.Drains = slices.DeleteFunc(t.Drains, func(d Drain) bool {
		_, there := t.Member(d.ID)
		return d.ID == id || d.sameContainer(of.Pod, of.PodUID, of.Container) && (d.PodUID != "" || !there)
	})
	return len(t.Drains) < before
}

// sameContainer reports whether the drain applies to that container. Outside a cluster, where there is no POD_UID, the
// names of Pod and container identify it.
func (d *Drain) sameContainer(pod, podUID, container string) bool {
	return d.Pod == pod && d.PodUID == podUID && d.Container == container && pod+podUID != ""
}

// DropOrders removes the orders that a program cannot read if it does not read the given format.
func (t *Table) DropOrders(format int) {
	if format <= PlaceFormat {
		t.Canary, t.Pins = Canary{}, nil
	}
	if format <= OrderFormat {
		t.Pause, t.Drains = Pause{}, nil
	}
}

// Lose records that a member is about to be expelled, at a time in Unix seconds. Its drain, if any, is kept for the
// container's next process.
func (t *Table) Lose(id string, at int64) {
	if i, has := t.findDrain(id); has {
		t.Drains[i].Lost = at
	}
}

// Inherit gives a joining member the drain of an earlier process of its container, or of one of the IDs in former.
func (t *Table) Inherit(m Member, former []string) {
	for _, d := range slices.Clone(t.Drains) {
		same := d.sameContainer(m.Pod, m.PodUID, m.Container)
		if d.ID == m.ID || !same && !slices.Contains(former, d.ID) {
			continue
		}
		if _, there := t.Member(d.ID); !there {
			t.DropDrain(d.ID)
		}
		d.ID, d.Pod, d.PodUID, d.Container, d.Lost = m.ID, m.Pod, m.PodUID, m.Container, 0
		t.putDrain(d)
	}
}

// dropEndedOrders removes the drains of members that left. When the last member leaves, all orders end except pins,
// which apply to later members.
func (t *Table) dropEndedOrders() {
	if len(t.Members) == 0 {
		t.Pause, t.Drains, t.Canary = Pause{}, nil, Canary{}
	}
	if len(t.Drains) == 0 {
		return
	}
	t.Drains = slices.DeleteFunc(t.Drains, func(d Drain) bool {
		_, there := t.Member(d.ID)
		return !there && d.Lost == 0
	})
	if len(t.Drains) == 0 {
		t.Drains = nil
	}
}

func (t *Table) validOrders() error {
	switch {
	case t.Pause != (Pause{}) && !t.Paused():
		return errors.New("pause: it has no time")
	case t.held() && !t.Reads(OrderFormat):
		return fmt.Errorf("a pause and drained members need table format %d, which not every member reads", OrderFormat)
	case (t.placed() || t.labeled()) && !t.Reads(PlaceFormat):
		return fmt.Errorf("a canary and pins need table format %d, which not every member reads", PlaceFormat)
	}
	if err := t.validCanary(); err != nil {
		return err
	}
	if err := t.validPins(); err != nil {
		return err
	}
	if t.Paused() {
		if err := validOrder(t.Pause.Since, t.Pause.By, t.Pause.Reason); err != nil {
			return fmt.Errorf("pause: %w", err)
		}
	}
	for i, d := range t.Drains {
		err := validOrder(d.Since, d.By, d.Reason)
		switch {
		case err != nil:
			return fmt.Errorf("drained member %s: %w", d.ID, err)
		case i > 0 && t.Drains[i-1].ID >= d.ID:
			return fmt.Errorf("drained member %s: not in order after %s", d.ID, t.Drains[i-1].ID)
		case d.Lost < 0:
			return fmt.Errorf("drained member %s: lost at %d", d.ID, d.Lost)
		}
		m := Member{
			ID: d.ID, Pod: d.Pod, PodUID: d.PodUID, Container: d.Container, Weight: 1,
			MinFormat: OldestFormat, MaxFormat: Format,
		}
		if err := ValidMember(m); err != nil {
			return fmt.Errorf("drained: %w", err)
		}
	}
	return nil
}

// validOrder checks the columns that all orders share.
func validOrder(since int64, by, reason string) error {
	switch {
	case since <= 0:
		return fmt.Errorf("since %d: want a time in Unix seconds", since)
	case len(by) > MaxOrderText || by == None:
		return fmt.Errorf("by %q: at most %d bytes, and not %q", by, MaxOrderText, None)
	case len(reason) > MaxOrderText || reason != OneSpaced(reason):
		return fmt.Errorf("reason %q: at most %d bytes, with single spaces between words", reason, MaxOrderText)
	}
	return nil
}

// OneSpaced returns the words of a text with single spaces between them, which is the form of an order's reason.
func OneSpaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// First words of the lines of the field orders.
const (
	wordPause  = "pause"
	wordDrain  = "drain"
	wordCanary = "canary"
)

// encodeOrders writes a line for the pause, each drain, and the canary.
func encodeOrders(t *Table) string {
	var out strings.Builder
	if t.Paused() {
		fmt.Fprintf(&out, "%s %d", wordPause, t.Pause.Since)
		endOrder(&out, t.Pause.By, t.Pause.Reason)
	}
	for _, d := range t.Drains {
		fmt.Fprintf(&out, "%s %s %s %s %s %d %d", wordDrain, d.ID, orNone(d.Pod), orNone(d.PodUID), orNone(d.Container),
			d.Since, d.Lost)
		endOrder(&out, d.By, d.Reason)
	}
	if c := &t.Canary; c.On() {
		out.WriteString(wordCanary + " " + c.columns())
		endOrder(&out, c.By, c.Reason)
	}
	return out.String()
}

// endOrder writes the last columns of an order.
func endOrder(out *strings.Builder, by, reason string) {
	out.WriteString(" " + orNone(escapeAll(by, "%")))
	for word := range strings.FieldsSeq(reason) {
		out.WriteString(" " + escapeAll(word, "%"))
	}
	out.WriteByte('\n')
}

// readOrderEnd parses what endOrder wrote. w has at least one word.
func readOrderEnd(w []string) (by, reason string, err error) {
	words := make([]string, len(w))
	for i, text := range w {
		if i == 0 {
			text = orEmpty(text)
		}
		if words[i], err = unescape(text); err != nil {
			return "", "", fmt.Errorf("%q: %w", text, err)
		}
	}
	return words[0], strings.Join(words[1:], " "), nil
}

// parseSince parses the time at which an order was given.
func parseSince(word string) (int64, error) {
	since, err := strconv.ParseInt(word, 10, 64)
	if err != nil || since <= 0 {
		return 0, fmt.Errorf("%q: want a time in Unix seconds", word)
	}
	return since, nil
}

// readOrder parses a line of encodeOrders.
func (t *Table) readOrder(w []string, format int) error {
	columns := map[string]int{wordPause: 2, wordDrain: 7, wordCanary: 1 + canaryColumns} // the columns before by
	n, known := columns[strings.Join(w[:min(1, len(w))], "")]
	if !known || len(w) <= n || w[0] == wordCanary && format < PlaceFormat {
		return fmt.Errorf("%q: want pause since by [reason], drain ID pod podUID container since lost by [reason], or, in "+
			"format %d, canary build state steps step began every namespaces verdict since by [reason]",
			strings.Join(w, " "), PlaceFormat)
	}
	by, reason, err := readOrderEnd(w[n:])
	if err != nil {
		return err
	}
	switch w[0] {
	case wordPause:
		if t.Paused() {
			return fmt.Errorf("%q: a second pause", strings.Join(w, " "))
		}
		t.Pause = Pause{By: by, Reason: reason}
		t.Pause.Since, err = parseSince(w[1])
	case wordDrain:
		d := Drain{
			ID: w[1], Pod: orEmpty(w[2]), PodUID: orEmpty(w[3]), Container: orEmpty(w[4]), By: by, Reason: reason,
		}
		var errLost error
		d.Since, err = parseSince(w[5])
		d.Lost, errLost = strconv.ParseInt(w[6], 10, 64)
		err = errors.Join(err, errLost)
		t.Drains = append(t.Drains, d)
	case wordCanary:
		if t.Canary.On() {
			return fmt.Errorf("%q: a second canary", strings.Join(w, " "))
		}
		t.Canary, err = readCanary(w[1:n])
		t.Canary.By, t.Canary.Reason = by, reason
	}
	return err
}

// orderSize returns an upper bound for the size of the orders in the table's text, in bytes. An escaped character takes
// 3 bytes.
func (t *Table) orderSize() int {
	size := 3*(len(t.Pause.By)+len(t.Pause.Reason)) + 48 + t.pinSize()
	if c := &t.Canary; c.On() {
		size += len(c.columns()) + 3*(len(c.By)+len(c.Reason)) + 16
	}
	for i := range t.Drains {
		d := &t.Drains[i]
		size += len(d.ID) + len(d.Pod) + len(d.PodUID) + len(d.Container) + 3*(len(d.By)+len(d.Reason)) + 64
	}
	return size
}
