package table

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/slot"
)

// maxDutyName is the longest name of a duty, in bytes.
const maxDutyName = 128

// OwnDuties is the prefix of the rota's own duties, such as the comparisons of rule R14.
const OwnDuties = "rota.dev/"

// OwnDuty reports whether the name is one of the rota's own duties.
func OwnDuty(name string) bool { return strings.HasPrefix(name, OwnDuties) }

// ValidDuty returns an error if a duty cannot have this name.
func ValidDuty(name string) error {
	if !isWord(name) || name == None || len(name) > maxDutyName || strings.Contains(name, ",") {
		return fmt.Errorf("duty %q: the name must be one printable word of at most %d characters, without a comma",
			name, maxDutyName)
	}
	return nil
}

// JoinDuties returns the names in the form of Member.Duties.
func JoinDuties(names ...string) string {
	names = slices.Sorted(slices.Values(names))
	return strings.Join(slices.Compact(names), ",")
}

// DutyNames iterates over the names of the duties that the member can do.
func (m Member) DutyNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		if m.Duties == "" {
			return
		}
		for name := range strings.SplitSeq(m.Duties, ",") {
			if !yield(name) {
				return
			}
		}
	}
}

// Total is the number of slots, including slots of duties.
func (t *Table) Total() int { return int(t.Slots) + len(t.Duties) }

// IsDuty reports whether s is a duty's slot, in this version of the table or another one.
func (t *Table) IsDuty(s slot.Slot) bool { return int(s) >= int(t.Slots) }

// Duty returns the name of the duty in slot s. It is empty for hash slots and for slots without a duty.
func (t *Table) Duty(s slot.Slot) string {
	if i := int(s) - int(t.Slots); i >= 0 && i < len(t.Duties) {
		return t.Duties[i]
	}
	return ""
}

// DutySlot returns the slot of a duty, or false if the table does not have the duty.
func (t *Table) DutySlot(name string) (s slot.Slot, ok bool) {
	i := slices.Index(t.Duties, name)
	return slot.Slot(int(t.Slots) + max(i, 0)), i >= 0 && name != ""
}

// Can returns a function that reports whether a member can own a slot. Every member can own hash slots.
func (t *Table) Can() func(m Member, s slot.Slot) bool {
	of := t.DutiesOf()
	return func(m Member, s slot.Slot) bool {
		if !t.IsDuty(s) {
			return true
		}
		set := of(m)
		return set.Has(s)
	}
}

// DutiesOf returns a function that returns the slots of the duties that a member can do. It parses each distinct list
// of duties once, since most members have the same list.
func (t *Table) DutiesOf() func(m Member) slot.Set {
	lists := map[string]slot.Set{"": {}}
	last, set := "", slot.Set{}
	return func(m Member) slot.Set {
		if m.Duties == last {
			return set
		}
		read, known := lists[m.Duties]
		if !known {
			read = t.dutySet(m.Duties)
			lists[m.Duties] = read
		}
		last, set = m.Duties, read
		return set
	}
}

// dutySet returns the slots of the listed duties that are in the table.
func (t *Table) dutySet(list string) (set slot.Set) {
	for name := range (Member{Duties: list}).DutyNames() {
		if s, known := t.DutySlot(name); known {
			set.Add(s)
		}
	}
	return set
}

// addDuties assigns the first free slots to the member's duties that are not in the table yet.
func (t *Table) addDuties(m Member) {
	for name := range m.DutyNames() {
		if _, known := t.DutySlot(name); known {
			continue
		}
		if i := slices.Index(t.Duties, ""); i >= 0 {
			t.Duties[i] = name
			continue
		}
		s := slot.Slot(t.Total()) // Valid checks the number of duties
		t.Duties = append(t.Duties, name)
		t.Runs = append(t.Runs, Run{Slots: slot.Range{First: s, Last: s}})
	}
}

// dropDuties removes the duties that no member announces. Their slots have no owner, since only members that announce a
// duty own it. The other duties keep their slots.
func (t *Table) dropDuties() {
	if len(t.Duties) == 0 {
		return
	}
	lists := map[string]bool{}
	var announced slot.Set
	for i := range t.Members {
		if list := t.Members[i].Duties; list != "" && !lists[list] {
			lists[list] = true
			set := t.dutySet(list)
			announced = announced.Union(set)
		}
	}
	for i := range t.Runs {
		r := &t.Runs[i]
		if t.IsDuty(r.Slots.First) && r.Owner == "" && !announced.Has(r.Slots.First) {
			t.Duties[int(r.Slots.First)-int(t.Slots)], r.Epoch = "", 0
		}
	}
	for n := len(t.Duties); n > 0 && t.Duties[n-1] == ""; n-- {
		t.Duties, t.Runs = t.Duties[:n-1], t.Runs[:len(t.Runs)-1]
	}
}

func (t *Table) validDuties() error {
	n := len(t.Duties)
	switch {
	case n == 0:
	case n > slot.MaxDuties:
		return fmt.Errorf("%d duties: a rota may have %d", n, slot.MaxDuties)
	case t.Duties[n-1] == "":
		return errors.New("the last duty has no name")
	case !t.Reads(DutyFormat):
		return fmt.Errorf("duties need table format %d, which not every member reads", DutyFormat)
	}
	known := make(map[string]bool, n)
	for _, name := range t.Duties {
		if name == "" {
			continue
		}
		if err := ValidDuty(name); err != nil {
			return err
		}
		if known[name] {
			return fmt.Errorf("duty %s: listed twice", name)
		}
		known[name] = true
	}
	lists := map[string]bool{}
	for i := range t.Members {
		m := &t.Members[i]
		if m.Duties == "" || lists[m.Duties] {
			continue
		}
		lists[m.Duties] = true
		for name := range m.DutyNames() {
			if !known[name] {
				return fmt.Errorf("member %s: it announces duty %s, which is not in the table", m.ID, name)
			}
		}
	}
	return nil
}

// validDuty checks a duty's run. Its owner and next owner must announce the duty.
func (t *Table) validDuty(r Run, can func(Member, slot.Slot) bool) error {
	name := t.Duty(r.Slots.First)
	if r.Slots.Len() != 1 {
		return fmt.Errorf("run %v: each duty must have its own run", r.Slots)
	}
	if name == "" && r != (Run{Slots: r.Slots}) {
		return fmt.Errorf("run %v: it has no duty, so it cannot have an owner", r.Slots)
	}
	for _, id := range []string{r.Owner, r.Next} {
		if m, ok := t.Member(id); ok && !can(m, r.Slots.First) {
			return fmt.Errorf("duty %s: member %s does not announce it", name, id)
		}
	}
	return nil
}

func encodeDuties(t *Table, a *abbreviations) string {
	var out strings.Builder
	for _, r := range t.Runs {
		if t.IsDuty(r.Slots.First) {
			out.WriteString(orNone(t.Duty(r.Slots.First)) + " ")
			writeRun(&out, r, a)
		}
	}
	return out.String()
}

// readDuty parses a line of encodeDuties.
func (t *Table) readDuty(w []string, a *abbreviations) error {
	if len(w) < 3 {
		return fmt.Errorf("%q: want name slot owner [epoch [-> next [ready]] [unsettled]]", strings.Join(w, " "))
	}
	r, err := parseRun(w[1:], a)
	if err != nil {
		return err
	}
	if int(r.Slots.First) != t.Total() || r.Slots.Len() != 1 {
		return fmt.Errorf("%s: slot %v, but the next one is %d", w[0], r.Slots, t.Total())
	}
	t.Duties, t.Runs = append(t.Duties, orEmpty(w[0])), append(t.Runs, r)
	return nil
}

// everybodyElse stands for all members in no other line of the field.
const everybodyElse = "*"

// encodeAble writes which members can do which duties, with a line for each list of duties. The most frequent list
// comes first and stands for all members in no other line.
func encodeAble(t *Table, a *abbreviations) string {
	by := map[string][]string{}
	for i := range t.Members {
		m := &t.Members[i]
		by[m.Duties] = append(by[m.Duties], a.name(m.ID))
	}
	lists := slices.Sorted(maps.Keys(by))
	slices.SortStableFunc(lists, func(x, y string) int { return cmp.Compare(len(by[y]), len(by[x])) })
	var out strings.Builder
	for i, list := range lists {
		set := t.dutySet(list)
		out.WriteString(orNone(set.String()))
		if i == 0 {
			out.WriteString(" " + everybodyElse)
		} else {
			out.WriteString(" " + strings.Join(by[list], " "))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// ableSize returns an upper bound for the size of encodeAble's text, in bytes.
func (t *Table) ableSize() (size int) {
	seen := map[string]bool{}
	for i := range t.Members {
		m := &t.Members[i]
		size += len(m.ID) + 1
		if !seen[m.Duties] {
			seen[m.Duties] = true
			size += len("12345,")*(strings.Count(m.Duties, ",")+1) + 4
		}
	}
	return size
}

// readAble parses a line of the field able: the slots of duties, and the members that can do exactly these duties. It
// adds each member with its duties to named. rest gets the duties of all members without a line.
func (t *Table) readAble(w []string, a *abbreviations, named map[string]string, rest *string) error {
	if len(w) < 2 {
		return fmt.Errorf("%q: want slots members", strings.Join(w, " "))
	}
	set, err := slot.ParseSet(orEmpty(w[0]))
	if err != nil {
		return err
	}
	var names []string
	for _, s := range set.Slots() {
		name := t.Duty(s)
		if name == "" {
			return fmt.Errorf("slot %v: there is no duty", s)
		}
		names = append(names, name)
	}
	list := JoinDuties(names...)
	if len(w) == 2 && w[1] == everybodyElse {
		if *rest != "" {
			return errors.New("two lines for all other members")
		}
		*rest = list
		return nil
	}
	for _, word := range w[1:] {
		id, err := a.expand(word)
		if err != nil {
			return err
		}
		if _, twice := named[id]; twice {
			return fmt.Errorf("member %s: in two lines", id)
		}
		if _, ok := t.Member(id); !ok {
			return fmt.Errorf("%s: is not a member", id)
		}
		named[id] = list
	}
	return nil
}

// readDuties parses the fields duties and able.
func (d *decoder) readDuties(t *Table, a *abbreviations) {
	d.lines(fieldDuties, func(w []string) error { return t.readDuty(w, a) })
	named, rest := map[string]string{}, ""
	d.lines(fieldAble, func(w []string) error { return t.readAble(w, a, named, &rest) })
	for i := range t.Members {
		m := &t.Members[i]
		list, ok := named[m.ID]
		if !ok {
			list = rest
		}
		m.Duties = list
	}
}

func (d *decoder) parseOlder() int64 {
	text, ok := d.data[fieldOlder]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		d.fail(fieldOlder, 0, fmt.Errorf("%q is not a time in Unix seconds", text))
	}
	return n
}
