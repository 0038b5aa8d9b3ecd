// Package inspect gives the exhaustive check (test/explore) access to the private state of a member.Member. The
// check copies members, compares them, and renames the numbers in them. Package member fills in the functions.
package inspect

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// Functions of a *member.Member.
var (
	// Copy returns a copy of the same type. The two share only data that never changes.
	Copy func(member any) any
	// Forget sets values to 0 that no longer influence the member.
	Forget func(member any)
	// Visit shows the state to v. The order depends only on the values shown before. Two members that show the same
	// values behave the same from then on. Caches are not shown.
	Visit func(member any, v Visitor)
	// Look returns part of a member's state.
	Look func(member any) Status
)

// Status is part of a member's state.
type Status struct {
	// Lapsed: its deadline has passed. Fenced: a slot waits for the fence.
	Lapsed, Fenced bool
	// Alone: it has seen no table of its own for a lease, and may create one.
	Alone bool
}

// Visitor is shown the values of a member's state. There is a method for each way in which a value matters. A visitor
// may replace a value that it gets a pointer to by one that means the same.
type Visitor interface {
	// Values that count as they are.
	Flags(values ...bool)
	Ints(values ...int)
	Texts(values ...string)

	// Times by the member's clock; 0 is none.

	// Wake is when a Tick is due.
	Wake(t *time.Duration)
	// Until is the end of a wait. Once it is reached, it means the same as 0.
	Until(t *time.Duration)
	// Past is a time whose age matters, up to the given one.
	Past(t *time.Duration, age time.Duration)
	// Order is a time that is only compared with other such times and with now.
	Order(t *time.Duration)

	// HeardNow is the member's heard time (rule R1). Only differences of heard times matter. Heard is the heard time of
	// an event; its age matters, up to the given one.
	HeardNow(t *time.Duration)
	Heard(t *time.Duration, age time.Duration)

	// Numbers that are only compared with others of their kind; 0 and "" are none.

	// Serial matches an answer to its request. LastSerial is the highest serial so far.
	Serial(n *uint64)
	LastSerial(n *uint64)
	// Epoch is an epoch of the table.
	Epoch(n *uint64)
	// TableVersion is a version of the table, LeaseVersion a version of a member's Lease.
	TableVersion(s *string)
	LeaseVersion(id string, s *string)
	// Key is a text that begins with a version of the table and a blank.
	Key(s *string)
	// Table is never changed, but may be replaced.
	Table(t **table.Table)
}
