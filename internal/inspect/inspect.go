// Package inspect lets the exhaustive check (internal/explore) look into a member.Member, which shows its state to
// nobody else: copy it, compare it with others, and rename the numbers in it. Package member fills in the functions.
package inspect

import (
	"time"

	"github.com/rota-dev/rota/table"
)

// Functions of a *member.Member.
var (
	// Copy returns a copy, of the same type. The two share only what is never changed.
	Copy func(member any) any
	// Forget sets to 0 what has no more influence on what the member does.
	Forget func(member any)
	// Visit shows v the state, in an order that depends on what was shown before only: two members that show the same
	// do the same from now on. Caches are not part of it.
	Visit func(member any, v Visitor)
	// Look tells a few things about a member.
	Look func(member any) Status
)

// Status is part of what a member is at.
type Status struct {
	// Lapsed: its deadline has passed. Fenced: a slot waits for the fence.
	Lapsed, Fenced bool
	// Alone: it has seen no table of its own for a lease, so that it may make one.
	Alone bool
}

// Visitor is shown the values that make up a member's state, by what matters of them. Those it gets a pointer to it may
// replace by others that mean the same.
type Visitor interface {
	// Values that count as they are.
	Flags(values ...bool)
	Ints(values ...int)
	Texts(values ...string)

	// Times by the member's clock; 0 is none.

	// Wake is when a Tick is due.
	Wake(t *time.Duration)
	// Until is the end of a wait. Once it has come, it is as good as 0.
	Until(t *time.Duration)
	// Past is a time of which it matters how long ago it was, up to age.
	Past(t *time.Duration, age time.Duration)
	// Order is a time that is only compared with others of this kind, and with now.
	Order(t *time.Duration)

	// HeardNow is the member's heard time (rule R1), of which only differences count. Heard is one at which something
	// happened; it matters up to age ago.
	HeardNow(t *time.Duration)
	Heard(t *time.Duration, age time.Duration)

	// Numbers of which only the order matters, among those of a kind; 0 and "" are none.

	// Serial tells answers apart. LastSerial is the highest so far.
	Serial(n *uint64)
	LastSerial(n *uint64)
	// Epoch is one of the table.
	Epoch(n *uint64)
	// TableVersion is a version of the table, LeaseVersion one of the Lease of a member.
	TableVersion(s *string)
	LeaseVersion(id string, s *string)
	// Key is a text that begins with a version of the table and a blank.
	Key(s *string)
	// Table is never changed, but may be replaced.
	Table(t **table.Table)
}
