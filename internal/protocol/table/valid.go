package table

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/slot"
)

// MaxEpoch is the highest valid epoch. Epochs start at the wall clock in milliseconds, so only an epoch written by hand
// comes near it.
const MaxEpoch = 1 << 62

// Valid returns an error that names the first broken invariant, or nil (rule R4).
func (t *Table) Valid() error {
	if err := t.Slots.Validate(); err != nil {
		return err
	}
	if t.Key == slot.KeyUnknown {
		return errors.New("key: unknown")
	}
	if t.Epoch > MaxEpoch {
		return fmt.Errorf("epoch %d: above %d, which no rota reaches unless it is edited", t.Epoch, uint64(MaxEpoch))
	}
	if err := t.validMembers(); err != nil {
		return err
	}
	if err := t.validDuties(); err != nil {
		return err
	}
	if err := t.validRuns(); err != nil {
		return err
	}
	if err := t.validOrders(); err != nil {
		return err
	}
	for epoch, note := range t.Notes {
		if epoch > t.Epoch {
			return fmt.Errorf("note of epoch %d: above the table's epoch %d", epoch, t.Epoch)
		}
		if note.Cause < CauseAssigned || note.Cause > CauseExpelled {
			return fmt.Errorf("note of epoch %d: unknown cause", epoch)
		}
		if note.Wait < 0 || note.Wait > 0 && note.Cause != CauseExpelled {
			return fmt.Errorf("note of epoch %d: it is %s, and waits %v", epoch, note.Cause, note.Wait)
		}
		for kind, version := range note.Versions {
			if !isWord(kind) || strings.Contains(kind, "=") || kind == wordWait {
				return fmt.Errorf("note of epoch %d: kind %q is not a word", epoch, kind)
			}
			if !isNumber(version) && version != List {
				return fmt.Errorf("note of epoch %d: %s: version %q is neither a number nor %q", epoch, kind, version, List)
			}
		}
	}
	if err := t.validGone(); err != nil {
		return err
	}
	for _, e := range t.Expels {
		if !isWord(e.Pod) {
			return fmt.Errorf("expel of %q: the pod's name is not a word", e.Pod)
		}
	}
	return nil
}

func (t *Table) validMembers() error {
	valid := map[string]bool{"": true} // lists of duties, checked once each
	for i, m := range t.Members {
		if m.Labels != "" && len(t.Pins) == 0 {
			return fmt.Errorf("member %s: it has labels, and no pin asks for any", m.ID)
		}
		list := m.Duties
		if valid[list] {
			m.Duties = ""
		}
		if err := ValidMember(m); err != nil {
			return err
		}
		valid[list] = true
		if i > 0 && t.Members[i-1].ID >= m.ID {
			return fmt.Errorf("member %s: not in order after %s", m.ID, t.Members[i-1].ID)
		}
	}
	return nil
}

// ValidMember returns an error if the table's text cannot hold the member's entry.
func ValidMember(m Member) error {
	if !isWord(m.ID) || m.ID == None || strings.Contains(m.ID, "~") {
		return fmt.Errorf("member %q: the ID must be one printable word without a tilde", m.ID)
	}
	for _, field := range []struct{ name, value string }{
		{"pod", m.Pod}, {"pod UID", m.PodUID}, {"container", m.Container}, {"build", m.Build},
	} {
		if field.value != "" && (!isWord(field.value) || field.value == None) {
			return fmt.Errorf("member %s: the %s %q must be one printable word", m.ID, field.name, field.value)
		}
	}
	if m.Weight < 1 {
		return fmt.Errorf("member %s: weight %d is below 1", m.ID, m.Weight)
	}
	if m.MinFormat < 1 || m.MaxFormat < m.MinFormat {
		return fmt.Errorf("member %s: table formats %d to %d", m.ID, m.MinFormat, m.MaxFormat)
	}
	if err := ValidLabels(m.Labels); err != nil {
		return fmt.Errorf("member %s: %w", m.ID, err)
	}
	last := ""
	for name := range m.DutyNames() {
		if err := ValidDuty(name); err != nil {
			return fmt.Errorf("member %s: %w", m.ID, err)
		}
		if name <= last {
			return fmt.Errorf("member %s: its duties are not in order, or one is listed twice", m.ID)
		}
		last = name
	}
	return nil
}

func (t *Table) validRuns() error {
	next := slot.Slot(0)
	can := t.Can()
	for _, r := range t.Runs {
		end := int(t.Slots)
		if t.IsDuty(r.Slots.First) {
			end = t.Total()
		}
		if r.Slots.First != next || r.Slots.Last < r.Slots.First || int(r.Slots.Last) >= end {
			return fmt.Errorf("run %v: the runs must tile the slots 0 to %d; expected one that starts at %d",
				r.Slots, end-1, next)
		}
		next = r.Slots.Last + 1
		if t.IsDuty(r.Slots.First) {
			if err := t.validDuty(r, can); err != nil {
				return err
			}
		}
		if r.Owner == "" && (r.Next != "" || r.Ready || r.Unsettled) {
			return fmt.Errorf("run %v: it has no owner, so it cannot move or be unsettled", r.Slots)
		}
		if r.Next == "" && r.Ready {
			return fmt.Errorf("run %v: ready, but it has no next owner", r.Slots)
		}
		for _, id := range []string{r.Owner, r.Next} {
			if _, ok := t.Member(id); id != "" && !ok {
				return fmt.Errorf("run %v: %s is not a member", r.Slots, id)
			}
		}
		if r.Owner != "" && r.Owner == r.Next {
			return fmt.Errorf("run %v: moves from %s to itself", r.Slots, r.Owner)
		}
		if r.Epoch > t.Epoch {
			return fmt.Errorf("run %v: epoch %d is above the table's, %d", r.Slots, r.Epoch, t.Epoch)
		}
		if r.Owner != "" && r.Epoch == 0 {
			return fmt.Errorf("run %v: owned since epoch 0", r.Slots)
		}
		if _, ok := t.Notes[r.Epoch]; r.Unsettled && !ok {
			return fmt.Errorf("run %v: unsettled, but there is no note for epoch %d", r.Slots, r.Epoch)
		}
	}
	if int(next) != t.Total() {
		return fmt.Errorf("runs end at slot %d: they must tile the slots 0 to %d", int(next)-1, t.Total()-1)
	}
	return nil
}

// None stands for an empty name in the table's text.
const None = "-"

func isWord(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

func isNumber(s string) bool {
	if s == "" || (s[0] == '0' && s != "0") || len(s) > 40 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func formatInt[T ~int | ~int64 | ~uint64](n T) string { return strconv.FormatInt(int64(n), 10) }
