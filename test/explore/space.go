package explore

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	maxPods = 3
	// maxIncs is how many incarnations a pod can have. The last of them does not come back.
	maxIncs = 3
	never   = time.Duration(math.MaxInt64)
	// maxCache bounds the maps that only save time.
	maxCache = 500_000
	// writeTimeout is Config.WriteTimeout in ticks.
	writeTimeout = 1
)

// state is a whole world, as the numbers of its parts. Many worlds share a part, so each part is stored once. Two
// states are equal if and only if their worlds are.
type state struct {
	members [maxPods]uint32
	boxes   [maxPods]uint32
	server  uint32
}

// ref is a number that a part contains.
type ref struct {
	class uint8
	value int
}

// store holds the parts of one kind.
type store[T any] struct {
	ids   map[string]uint32
	items []*T
	refs  [][]ref
	// renamed caches the results of renaming numbers in parts.
	renamed map[string]uint32
}

func newStore[T any]() *store[T] {
	// Number 0 is none.
	return &store[T]{ids: map[string]uint32{}, items: []*T{nil}, refs: [][]ref{nil}, renamed: map[string]uint32{}}
}

func (s *store[T]) add(key []byte, item *T, numbers func(visit)) uint32 {
	if id, ok := s.ids[string(key)]; ok {
		return id
	}
	id := uint32(len(s.items)) // memory ends first
	s.ids[string(key)] = id
	s.items = append(s.items, item)
	var refs []ref
	numbers(func(class uint8, v int) int {
		if r := (ref{class, v}); !slices.Contains(refs, r) {
			refs = append(refs, r)
		}
		return v
	})
	s.refs = append(s.refs, refs)
	return id
}

// space is what all states of one search share: the scope, the member's configuration and the parts of states.
type space struct {
	Scope
	config  member.Config
	tables  tables
	members *store[member.Member]
	boxes   *store[box]
	servers *store[server]
	steps   map[string]stepped
	shifted []uint32 // by member

	key     encoder
	scratch [classLease + maxPods*maxIncs][]int
	own     [maxPods][2][]int
}

type stepped struct {
	member  uint32
	actions []member.Action
}

func newSpace(s Scope) *space {
	x := &space{
		Scope: s, tables: newTables(), members: newStore[member.Member](), boxes: newStore[box](),
		servers: newStore[server](), steps: map[string]stepped{},
	}
	x.config = member.Config{
		Slots: slot.Count(s.Slots), Key: slot.KeyName,
		LeaseDuration: 4, RenewDeadline: time.Duration(s.Deadline), RetryPeriod: 1, WriteTimeout: writeTimeout, FenceDelay: 2,
		SettleDelay: time.Duration(s.Settle), JoinDelay: time.Duration(s.Join), RolloutDelay: time.Duration(s.Join),
		MaxTable: table.MaxSize, LoadPeriod: 4,
	}
	if s.Deadline == 0 {
		x.config.RenewDeadline = 3
	}
	return x
}

func (x *space) memberConfig(pod int, inc, former uint8) member.Config {
	c := x.config
	name := podName(pod)
	c.Self = table.Member{
		ID: x.name(x.leaseIndex(pod, inc)), Pod: name, PodUID: "uid-" + name, Container: "main", Build: x.build(pod),
		Weight:    1,
		MinFormat: table.OldestFormat, MaxFormat: table.Format, Duties: x.duties(pod),
	}
	if len(x.Orders) > 0 {
		c.Self.Labels = "pod=" + name
	}
	for i := former; i < inc; i++ {
		c.Former = append(c.Former, x.name(x.leaseIndex(pod, i)))
	}
	if err := c.Validate(); err != nil {
		panic(err)
	}
	return c
}

// build is that of a pod: where people give orders, the last one's is a canary's.
func (x *space) build(pod int) string {
	if len(x.Orders) > 0 && pod == x.Pods-1 {
		return canaryBuild
	}
	return "v1"
}

// total is the number of slots, those of duties included.
func (x *space) total() int { return x.Slots + x.Duties }

// duties are those that a pod can do: all of them, but for the last one where only the first pod can do it.
func (x *space) duties(pod int) string {
	var names []string
	for i := range x.Duties {
		if pod == 0 || !x.Own || i+1 < x.Duties {
			names = append(names, string(rune('x'+i)))
		}
	}
	return table.JoinDuties(names...)
}

func podName(pod int) string { return string(rune('a' + pod)) }

// leaseIndex numbers incarnations; they count from 1.
func (x *space) leaseIndex(pod int, inc uint8) uint8 { return uint8(pod*maxIncs) + max(inc, 1) - 1 }

func (x *space) name(index uint8) string {
	return fmt.Sprintf("%s%d", podName(int(index)/maxIncs), index%maxIncs+1)
}

func (x *space) indexOf(id string) uint8 {
	if len(id) != 2 || id[0] < 'a' || int(id[0]-'a') >= maxPods || id[1] < '1' || id[1] > '0'+maxIncs {
		panic("no member " + id)
	}
	return (id[0]-'a')*maxIncs + id[1] - '1'
}

func (x *space) leaseClass(id string) uint8 { return classLease + x.indexOf(id) }

func (x *space) addMember(m *member.Member) uint32 {
	x.key = x.key[:0]
	x.encode(m, &x.key)
	return x.members.add(x.key, m, func(v visit) { x.numbers(m, v) })
}

func (x *space) addBox(b *box, pod int) uint32 {
	x.key = append(x.key[:0], byte(pod)) // boxes of different pods have different classes of numbers
	b.encode(x, &x.key)
	return x.boxes.add(x.key, b, func(v visit) { b.numbers(x, pod, v) })
}

func (x *space) addServer(s *server) uint32 {
	x.key = x.key[:0]
	s.encode(x, &x.key)
	return x.servers.add(x.key, s, func(v visit) { s.numbers(x, v) })
}

// shiftMember lets a tick pass for a member.
func (x *space) shiftMember(id uint32) uint32 {
	if int(id) < len(x.shifted) && x.shifted[id] != 0 {
		return x.shifted[id]
	}
	m := clone(x.members.items[id])
	x.shift(m)
	to := x.addMember(m)
	if n := len(x.members.items); len(x.shifted) < n {
		x.shifted = append(x.shifted, make([]uint32, n-len(x.shifted))...)
	}
	x.shifted[id] = to
	return to
}

// step steps a member. It caches the results.
func (x *space) step(id uint32, e member.Event) (uint32, []member.Action) {
	x.key = binary.AppendUvarint(x.key[:0], uint64(id))
	x.event(e, &x.key)
	if s, ok := x.steps[string(x.key)]; ok {
		return s.member, s.actions
	}
	key := string(x.key)
	m := clone(x.members.items[id])
	actions := m.Step(member.Time{Mono: base, Wall: wall}, e)
	for i, a := range actions {
		switch a := a.(type) {
		case member.Swap:
			a.Table = x.intern(a.Table)
			actions[i] = a
		case member.CreateTable:
			a.Table = x.intern(a.Table)
			actions[i] = a
		default:
		}
	}
	s := stepped{actions: actions}
	if !m.Ended() {
		x.clean(m)
		s.member = x.addMember(m)
	}
	if len(x.steps) >= maxCache {
		clear(x.steps)
	}
	x.steps[key] = s
	return s.member, s.actions
}

// event encodes an event, so that different events have different encodings.
func (x *space) event(e member.Event, b *encoder) {
	switch e := e.(type) {
	case member.Tick:
		*b = append(*b, 't')
	case member.Leave:
		*b = append(*b, 'q')
	case member.Lapsed:
		*b = append(*b, 'x')
	case member.Renewed:
		*b = append(*b, 'r', byte(e.Outcome))
		b.times(e.Start)
		b.text(e.Lease.Version)
		b.bools(e.Lease.Open)
	case member.TableSeen:
		*b = append(*b, 's')
		b.snapshot(x, e.Snapshot)
		b.bools(e.Consistent, e.Listed)
		b.times(e.Begun)
	case member.ReadFailed:
		*b = append(*b, 'f')
	case member.Swapped:
		*b = append(*b, 'w', byte(e.Outcome))
		b.int(int(e.Serial))
		b.snapshot(x, e.Snapshot)
	case member.LeasesSeen:
		*b = append(*b, 'l')
		b.bools(e.Complete)
		b.int(int(e.Watch))
		b.int(len(e.Gone))
		b.text(e.Gone...)
		for _, l := range e.Leases {
			b.text(l.ID, l.Version, l.TableUID)
			b.int(int(l.Epoch))
			b.bools(l.Open)
		}
	case member.LeaseDeleted:
		*b = append(*b, 'd', byte(e.Outcome))
		b.text(e.ID)
	case member.Warmed:
		*b = append(*b, 'm', maskOf(e.Slots, x.total()))
		b.int(int(e.Round))
	case member.Loaded:
		*b = append(*b, 'o', maskOf(e.Slots, x.total()))
		b.int(int(e.Round))
	case member.LoadsSeen:
		*b = append(*b, 'v')
		b.int(int(e.Serial))
		b.int(len(e.Reports))
		for _, r := range e.Reports {
			b.text(r.ID, r.Trial.Build)
			b.int(int(r.Trial.Began))
			b.int(r.Trial.Step)
		}
	case member.Drained:
		*b = append(*b, 'n', maskOf(e.Slots, x.total()))
		b.int(int(e.Round))
		b.int(len(e.Gone)) // one in each slot
	default:
		panic(fmt.Sprintf("event %T", e))
	}
}

// normal renames the numbers in a state by rank.
func (x *space) normal(s state) state {
	for i := range x.scratch {
		x.scratch[i] = x.scratch[i][:0]
	}
	collect := func(refs []ref, own *[2][]int) {
		for _, r := range refs {
			into := &x.scratch[r.class]
			if own != nil && (r.class == classOrder || r.class == classSerial) {
				into = &own[r.class-classOrder]
			}
			if !slices.Contains(*into, r.value) {
				*into = append(*into, r.value)
			}
		}
	}
	for i := range x.Pods {
		own := &x.own[i]
		own[0], own[1] = own[0][:0], own[1][:0]
		collect(x.members.refs[s.members[i]], own)
		collect(x.boxes.refs[s.boxes[i]], own)
		descend(own[0])
		descend(own[1])
	}
	collect(x.servers.refs[s.server], nil)
	for i := range x.scratch {
		descend(x.scratch[i])
	}
	for i := range x.Pods {
		own := &x.own[i]
		to := x.renaming(own)
		if id := s.members[i]; id != 0 {
			s.members[i] = rename(x, x.members, id, to, func() uint32 {
				m := clone(x.members.items[id])
				x.numbers(m, to)
				return x.addMember(m)
			})
		}
		id := s.boxes[i]
		s.boxes[i] = rename(x, x.boxes, id, to, func() uint32 {
			b := x.boxes.items[id].clone()
			b.numbers(x, i, to)
			return x.addBox(b, i)
		})
	}
	to := x.renaming(nil)
	s.server = rename(x, x.servers, s.server, to, func() uint32 {
		c := x.servers.items[s.server].clone()
		c.numbers(x, to)
		return x.addServer(c)
	})
	return s
}

func descend(values []int) {
	slices.SortFunc(values, func(a, b int) int { return b - a })
}

func (x *space) renaming(own *[2][]int) visit {
	return func(class uint8, v int) int {
		switch class {
		case classEpoch:
			return epochTop - epochStep*slices.Index(x.scratch[classEpoch], v)
		case classOrder:
			values := own[0]
			if values[0] == base {
				return base - slices.Index(values, v)
			}
			return base - 1 - slices.Index(values, v)
		case classSerial:
			return top - slices.Index(own[1], v)
		default:
			return top - slices.Index(x.scratch[class], v)
		}
	}
}

func rename[T any](x *space, s *store[T], id uint32, to visit, do func() uint32) uint32 {
	refs := s.refs[id]
	same := true
	x.key = binary.AppendUvarint(x.key[:0], uint64(id))
	for _, r := range refs {
		v := to(r.class, r.value)
		same = same && v == r.value
		x.key.int(v)
	}
	if same {
		return id
	}
	if known, ok := s.renamed[string(x.key)]; ok {
		return known
	}
	key := string(x.key)
	renamed := do()
	if len(s.renamed) >= maxCache {
		clear(s.renamed)
	}
	s.renamed[key] = renamed
	return renamed
}
