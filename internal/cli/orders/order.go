// Package orders implements people's commands to the members: pausing moves, draining members, rebalancing, canaries
// and pins (rule R19). An order is one swap of the table, like a member's write.
package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Store is the part of store.Store that orders need.
type Store interface {
	ReadTable(ctx context.Context) (member.Snapshot, error)
	SwapTable(
		ctx context.Context, t *table.Table, uid, version string, timeout time.Duration,
	) (member.Snapshot, member.Outcome, error)
}

// Epochs returns the highest epoch in the members' Leases for each table UID.
type Epochs func(ctx context.Context) (map[string]uint64, error)

// Errors of Give. It also returns view.ErrTable, view.ErrNewer, and errors of the API server and of the change.
var (
	// ErrMissing: there is no table.
	ErrMissing = errors.New("there is no table: no member has ever started, or it was deleted and the members have not " +
		"created a new one yet")
	// ErrOldCopy: the table was restored from a copy, and no member has taken it over (rule R16).
	ErrOldCopy = errors.New("the table is an old copy: `rota status` shows what to do")
	// ErrConflict: the table changed before each write until ctx ended.
	ErrConflict = errors.New("the table kept changing meanwhile: try again")
)

// ErrNoChange is returned by a change if the table is already as requested. Then Give does not write.
var ErrNoChange = errors.New("nothing to change")

const (
	writeTimeout = 5 * time.Second
	retryFirst   = 20 * time.Millisecond
	retryMost    = time.Second
)

// Give changes the table and returns the result. change receives a copy, whose epoch Give raises. change may be called
// several times: until ctx ends, Give retries with a new read if the table has changed, or if it is unknown whether the
// write took effect. changed is false if there was nothing to change.
func Give(ctx context.Context, s Store, read Epochs, change func(*table.Table) error,
) (t *table.Table, changed bool, err error) {
	unknown := false // an earlier write may have taken effect
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		t, outcome, err := give(ctx, s, read, change)
		switch {
		case errors.Is(err, ErrNoChange):
			return t, unknown, nil
		case err == nil:
			return t, true, nil
		case outcome == member.OutcomeUnknown:
			unknown = true
		case outcome == member.OutcomeConflict:
			err = ErrConflict
		default:
			return nil, false, err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)): // jitter
		case <-ctx.Done():
			return nil, false, err
		}
	}
}

// give makes one attempt. It returns OutcomeFailed or the outcome of the write.
func give(ctx context.Context, s Store, read Epochs, change func(*table.Table) error,
) (*table.Table, member.Outcome, error) {
	// Read the Leases first, so the table is never older than the epochs in them.
	epochs, err := read(ctx)
	if err != nil {
		return nil, member.OutcomeFailed, err
	}
	snap, err := s.ReadTable(ctx)
	switch {
	case err != nil:
		return nil, member.OutcomeFailed, err
	case snap.Missing():
		return nil, member.OutcomeFailed, ErrMissing
	case errors.Is(snap.Err, table.ErrFormat):
		return nil, member.OutcomeFailed, fmt.Errorf("%w: %w", view.ErrNewer, snap.Err)
	case snap.Err != nil:
		return nil, member.OutcomeFailed, fmt.Errorf("%w: %w", view.ErrTable, snap.Err)
	case snap.Table.UID != snap.UID || snap.Table.Epoch < epochs[snap.UID]:
		return nil, member.OutcomeFailed, ErrOldCopy
	}
	next := snap.Table.Clone()
	if err := change(next); err != nil {
		return snap.Table, member.OutcomeFailed, err
	}
	next.Seal(snap.Table.Epoch + 1)
	if err := next.Valid(); err != nil {
		return nil, member.OutcomeFailed, fmt.Errorf("the table would be invalid: %w", err)
	}
	_, outcome, err := s.SwapTable(ctx, next, snap.UID, snap.Version, writeTimeout)
	return next, outcome, err
}

// By records who gives an order, when and why.
type By struct {
	At time.Time
	// User and Reason may be empty. They are cut to 256 bytes.
	User, Reason string
}

// cut returns the fields, cut to the table's limits.
func (b By) cut() (since int64, user, reason string) {
	user = table.OneSpaced(strings.ToValidUTF8(b.User[:min(len(b.User), table.MaxOrderText)], ""))
	if user == table.None {
		user = ""
	}
	reason = table.OneSpaced(strings.ToValidUTF8(b.Reason[:min(len(b.Reason), table.MaxOrderText)], ""))
	return b.At.Unix(), user, reason
}

// OldMembersError is returned if members run an older release that does not support an order.
type OldMembersError struct {
	Members []table.Member
	What    string // what they do not support
}

func (e *OldMembersError) Error() string {
	var who []string
	for _, m := range e.Members {
		who = append(who, m.ID+" (build "+cmp.Or(m.Build, "unknown")+")")
	}
	return fmt.Sprintf("some members run an older release of Rota that does not support %s: %s; "+
		"update them first", e.What, strings.Join(who, ", "))
}

func readable(t *table.Table) error {
	if old := t.NotReading(table.OrderFormat); len(old) > 0 {
		return &OldMembersError{old, "a pause or drained members"}
	}
	return nil
}

// Pause pauses moves between live members. An existing pause is kept.
func Pause(t *table.Table, by By) error {
	if t.Paused() {
		return ErrNoChange
	}
	if len(t.Members) == 0 {
		return errors.New("the rota has no members, so nothing moves; and a pause ends with the last member")
	}
	since, user, reason := by.cut()
	t.Pause = table.Pause{Since: since, By: user, Reason: reason}
	return readable(t)
}

// Resume ends a pause.
func Resume(t *table.Table) error {
	if !t.Paused() {
		return ErrNoChange
	}
	t.Pause = table.Pause{}
	return nil
}

// MemberError is returned if a name does not identify one member.
type MemberError struct {
	Name    string
	Members []string // all members, or the members of the Pod of that name
	Several bool     // the Pod has several members
}

func (e *MemberError) Error() string {
	switch {
	case e.Several:
		return fmt.Sprintf("Pod %s has several members, choose one: %s", e.Name, strings.Join(e.Members, ", "))
	case len(e.Members) == 0:
		return fmt.Sprintf("there is no member %s: the rota has no members", e.Name)
	}
	return fmt.Sprintf("there is no member %s: the members are %s", e.Name, strings.Join(e.Members, ", "))
}

// Find returns the member with that ID, or the only member of the Pod with that name. It returns a *MemberError if
// there is none or several.
func Find(t *table.Table, name string) (table.Member, error) {
	if m, ok := t.Member(name); ok {
		return m, nil
	}
	var found []table.Member
	for _, m := range t.Members {
		if m.Pod == name {
			found = append(found, m)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	e := &MemberError{Name: name, Several: len(found) > 0}
	if !e.Several {
		found = t.Members
	}
	for _, m := range found {
		e.Members = append(e.Members, m.ID)
	}
	return table.Member{}, e
}

// Drain marks a member as drained. An existing mark is kept.
func Drain(t *table.Table, id string, by By) error {
	if _, err := Find(t, id); err != nil {
		return err
	}
	if t.Drained(id) {
		return ErrNoChange
	}
	since, user, reason := by.cut()
	t.PutDrain(id, since, user, reason)
	return readable(t)
}

// Undrain removes a member's mark. The name is an ID or a Pod's name. A mark may outlive its member: then the name may
// be the expelled member's ID or its Pod's name. It returns the ID of the member or of the mark.
func Undrain(t *table.Table, name string) (id string, err error) {
	if id, err = marked(t, name); err != nil {
		return "", err
	}
	if !t.Undrain(id) {
		return id, ErrNoChange
	}
	return id, nil
}

// marked returns the ID of the mark or the member with that name.
func marked(t *table.Table, name string) (string, error) {
	if t.Drained(name) {
		return name, nil
	}
	m, err := Find(t, name)
	if err == nil {
		return m.ID, nil
	}
	var unknown *MemberError
	if errors.As(err, &unknown) && unknown.Several {
		return "", err
	}
	id := "" // the last process of that Pod, whose mark applies to the next one
	latest := int64(0)
	for _, d := range t.Drains {
		if d.Pod == name && d.Lost >= latest {
			id, latest = d.ID, d.Lost
		}
	}
	if id == "" {
		return "", err
	}
	return id, nil
}

// Rest is what a drained member still owns.
type Rest struct {
	// Slots and Duties count what others will take. Only are the duties that no other member can run.
	Slots, Duties int
	Only          []string
	// Coming counts slots and duties that are moving to it.
	Coming int
	// Alone is true if no member could take them.
	Alone bool
}

// Done reports whether it has given up everything that it can.
func (r Rest) Done() bool { return r.Slots+r.Duties+r.Coming == 0 }

// RestOf returns what a drained member still owns, or the zero value if the member is not in the table.
func RestOf(t *table.Table, id string) (r Rest) {
	if _, ok := t.Member(id); !ok {
		return r
	}
	others := slices.DeleteFunc(slices.Clone(t.Members), func(m table.Member) bool {
		return m.ID == id || m.Leaving || t.Drained(m.ID)
	})
	r.Alone = len(others) == 0
	can := t.Can()
	for _, run := range t.Runs {
		if run.Next == id {
			r.Coming += run.Slots.Len()
		}
		switch {
		case run.Owner != id:
		case !t.IsDuty(run.Slots.First):
			r.Slots += run.Slots.Len()
		case slices.ContainsFunc(others, func(m table.Member) bool { return can(m, run.Slots.First) }):
			r.Duties++
		default:
			r.Only = append(r.Only, t.Duty(run.Slots.First))
		}
	}
	return r
}

// Moving counts the slots and duties that are moving to a member, or activating there.
func Moving(t *table.Table) (n int) {
	for _, run := range t.Runs {
		if run.Next != "" || run.Unsettled && run.Owner != "" {
			n += run.Slots.Len()
		}
	}
	return n
}

// Rebalance begins the moves that balance the shares (planner.Rebalance). It returns an error if silent, the members
// that do not renew, is not empty. loads are the members' reports.
func Rebalance(t *table.Table, at time.Time, silent []string, loads []planner.LoadReport) error {
	switch {
	case t.Paused():
		return errors.New("moves are paused, so none can begin: `rota resume` first")
	case len(silent) > 0:
		return fmt.Errorf("members do not renew their Leases: %s; they recover or are expelled within a lease: try again "+
			"then",
			strings.Join(silent, ", "))
	}
	next, err := planner.Rebalance(t, at.Unix(), loads)
	if err != nil {
		return err
	}
	if next == t {
		return ErrNoChange
	}
	*t = *next
	return nil
}
