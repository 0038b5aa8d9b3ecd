package explore

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/inspect"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Worlds that differ only in absolute numbers are one state. So each transition ends with bringing every number into a
// normal form:
//
//   - The time is always base. A tick moves all remembered times one tick into the past instead. Times further back
//     than any wait looks are cut off there. A timer that is due is 0, like one that was never set.
//   - Versions, epochs and serials count down from top, by rank. Members only compare them, and add at most 3 to an
//     epoch (hence epochStep).
//   - Numbers that are never read again are 0.
const (
	base      = 1000
	top       = 500
	epochTop  = 5000
	epochStep = 10
	// wall never changes. Epochs start above it, and memories of crashes never fade.
	wall = 1000
)

// The classes of numbers that are renamed by rank. Order and serial are ranked for each node separately.
const (
	classTable  uint8 = iota // versions of the table
	classEpoch               // epochs of tables
	classOrder               // times that are only compared with each other and with base
	classSerial              // serials, which match answers to requests
	classLease               // and above: versions of a Lease, by its index
)

// visit is called for every number of a class. It returns the number to replace it with.
type visit func(class uint8, v int) int

func (v visit) text(class uint8, s *string) {
	if *s == "" {
		return
	}
	n, err := strconv.Atoi(*s)
	if err != nil {
		panic(err)
	}
	if to := v(class, n); to != n {
		*s = strconv.Itoa(to)
	}
}

func (v visit) uint(class uint8, n *uint64) {
	if *n != 0 {
		*n = uint64(v(class, int(*n)))
	}
}

func (v visit) int(class uint8, n *int) {
	if *n != 0 {
		*n = v(class, *n)
	}
}

func (v visit) order(t *time.Duration) {
	if *t != 0 {
		*t = time.Duration(v(classOrder, int(*t)))
	}
}

// clean brings a member into normal form after a Step, except for the numbers that are renamed.
func (x *space) clean(m *member.Member) {
	inspect.Forget(m)
	inspect.Visit(m, &cleaner{x: x})
}

// shift lets a tick pass for a member.
func (x *space) shift(m *member.Member) {
	inspect.Visit(m, shifter{})
	x.clean(m)
}

// numbers visits the numbers that are renamed.
func (x *space) numbers(m *member.Member, v visit) { inspect.Visit(m, &renamer{x: x, visit: v}) }

// encode encodes a member in normal form. Different members have different encodings.
func (x *space) encode(m *member.Member, b *encoder) { inspect.Visit(m, &teller{x: x, b: b}) }

func clone(m *member.Member) *member.Member { return inspect.Copy(m).(*member.Member) }

// blind ignores everything.
type blind struct{}

func (blind) Flags(...bool)                       {}
func (blind) Ints(...int)                         {}
func (blind) Texts(...string)                     {}
func (blind) Wake(*time.Duration)                 {}
func (blind) Until(*time.Duration)                {}
func (blind) Past(*time.Duration, time.Duration)  {}
func (blind) Order(*time.Duration)                {}
func (blind) HeardNow(*time.Duration)             {}
func (blind) Heard(*time.Duration, time.Duration) {}
func (blind) Serial(*uint64)                      {}
func (blind) LastSerial(*uint64)                  {}
func (blind) Epoch(*uint64)                       {}
func (blind) TableVersion(*string)                {}
func (blind) LeaseVersion(string, *string)        {}
func (blind) Key(*string)                         {}
func (blind) Table(**table.Table)                 {}

// cleaner cuts off times that lie further back than they matter, and clears timers that are due.
type cleaner struct {
	blind
	x     *space
	heard time.Duration // by how much heard times move
}

func (c *cleaner) Wake(t *time.Duration)     { *t = max(*t, base) }
func (c *cleaner) LastSerial(n *uint64)      { *n = top }
func (c *cleaner) Table(t **table.Table)     { *t = c.x.intern(*t) }
func (c *cleaner) HeardNow(t *time.Duration) { c.heard, *t = base-*t, base }

func (c *cleaner) Until(t *time.Duration) {
	if *t <= base {
		*t = 0
	}
}

func (c *cleaner) Past(t *time.Duration, age time.Duration) {
	if *t != 0 {
		*t = max(*t, base-age)
	}
}

func (c *cleaner) Heard(t *time.Duration, age time.Duration) { *t = max(*t+c.heard, base-age) }

// shifter moves all times one tick into the past.
type shifter struct{ blind }

func (shifter) Wake(t *time.Duration) {
	if *t < never {
		*t--
	}
}

func (shifter) Until(t *time.Duration)                 { earlier(t) }
func (shifter) Past(t *time.Duration, _ time.Duration) { earlier(t) }
func (shifter) Order(t *time.Duration)                 { earlier(t) }

func earlier(t *time.Duration) {
	if *t != 0 {
		*t--
	}
}

// renamer renames numbers.
type renamer struct {
	blind
	x *space
	visit
}

func (r *renamer) Order(t *time.Duration)            { r.order(t) }
func (r *renamer) Serial(n *uint64)                  { r.uint(classSerial, n) }
func (r *renamer) Epoch(n *uint64)                   { r.uint(classEpoch, n) }
func (r *renamer) TableVersion(s *string)            { r.text(classTable, s) }
func (r *renamer) LeaseVersion(id string, s *string) { r.text(r.x.leaseClass(id), s) }
func (r *renamer) Table(t **table.Table)             { *t = r.x.renameTable(*t, r.visit) }

func (r *renamer) Key(s *string) {
	if before, rest, ok := strings.Cut(*s, " "); ok {
		version := before
		if r.text(classTable, &version); version != before {
			*s = version + " " + rest
		}
	}
}

// teller encodes everything.
type teller struct {
	x *space
	b *encoder
}

func (e *teller) Flags(values ...bool)                    { e.b.bools(values...) }
func (e *teller) Texts(values ...string)                  { e.b.text(values...) }
func (e *teller) Wake(t *time.Duration)                   { e.b.int(int(*t)) }
func (e *teller) Until(t *time.Duration)                  { e.b.int(int(*t)) }
func (e *teller) Past(t *time.Duration, _ time.Duration)  { e.b.int(int(*t)) }
func (e *teller) Order(t *time.Duration)                  { e.b.int(int(*t)) }
func (e *teller) HeardNow(*time.Duration)                 {} // it is base
func (e *teller) Heard(t *time.Duration, _ time.Duration) { e.b.int(int(*t)) }
func (e *teller) Serial(n *uint64)                        { e.b.int(int(*n)) }
func (e *teller) LastSerial(*uint64)                      {} // it is top
func (e *teller) Epoch(n *uint64)                         { e.b.int(int(*n)) }
func (e *teller) TableVersion(s *string)                  { e.b.text(*s) }
func (e *teller) LeaseVersion(_ string, s *string)        { e.b.text(*s) }
func (e *teller) Key(s *string)                           { e.b.text(*s) }
func (e *teller) Table(t **table.Table)                   { e.b.int(e.x.tableID(*t)) }

func (e *teller) Ints(values ...int) {
	for _, n := range values {
		e.b.int(n)
	}
}

// encoder appends values. Different values have different encodings.
type encoder []byte

func (b *encoder) int(n int) { *b = binary.AppendVarint(*b, int64(n)) }

func (b *encoder) times(ts ...time.Duration) {
	for _, t := range ts {
		b.int(int(t))
	}
}

func (b *encoder) text(ss ...string) {
	for _, s := range ss {
		b.int(len(s))
		*b = append(*b, s...)
	}
}

func (b *encoder) bools(bs ...bool) {
	for _, v := range bs {
		if v {
			*b = append(*b, 1)
		} else {
			*b = append(*b, 0)
		}
	}
}

func (b *encoder) snapshot(x *space, s member.Snapshot) {
	b.text(s.UID, s.Version)
	b.int(x.tableID(s.Table))
}
