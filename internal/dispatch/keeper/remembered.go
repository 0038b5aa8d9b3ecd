package keeper

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
)

const (
	// recall is how long the deletion of an object in another member's slot is remembered, and recallMax how many are,
	// for each followed kind and namespace. A dead member's slots are taken over within that time.
	recall    = 5 * time.Minute
	recallMax = 100_000
)

// objectName is a name in a namespace.
type objectName struct{ namespace, name string }

// remembered stores the names of objects, which reveal what a list does not show any more. A nil value remembers
// nothing.
//
// For held slots it stores the names of all objects. If a list no longer shows one of them, it was deleted. For other
// slots it stores recent deletions: if their owner dies, it may not have handed them out.
//
// It is not safe for concurrent use.
type remembered struct {
	spaces spaces
	slots  map[slot.Slot]*names
	passes uint64

	gone recalled[objectName]
	key  []byte // reused
}

// names are the names of one slot. pass is the number of its latest list.
type names struct {
	set  nameSet
	pass uint64
}

func newRemembered() *remembered {
	return &remembered{slots: map[slot.Slot]*names{}, gone: newRecalled[objectName](recall, recallMax)}
}

// hold starts to store the names of the slots' objects.
func (m *remembered) hold(set slot.Set) {
	if m == nil {
		return
	}
	for _, s := range set.Slots() {
		if m.slots[s] == nil {
			m.slots[s] = &names{}
		}
	}
}

// shut drops the slots' names.
func (m *remembered) shut(set slot.Set) {
	if m == nil {
		return
	}
	for _, s := range set.Slots() {
		if n := m.slots[s]; n != nil {
			n.set.Clear()
			n.set.Sweep(m.release)
			delete(m.slots, s)
		}
	}
}

// exists handles an event of an existing object.
func (m *remembered) exists(s slot.Slot, o objectName, version string) {
	if m == nil {
		return
	}
	m.gone.exists(o, version)
	if n := m.slots[s]; n != nil {
		m.add(n, o)
	}
}

func (m *remembered) add(n *names, o objectName) {
	before := n.set.Len()
	n.set.Add(m.keyOf(o))
	if n.set.Len() > before {
		m.spaces.use(o.namespace)
	}
}

// deleted handles an event of a deleted object.
func (m *remembered) deleted(s slot.Slot, o objectName, d deletion) {
	if m == nil {
		return
	}
	if n := m.slots[s]; n != nil {
		if _, known := m.spaces.numbers[o.namespace]; !known {
			return // keyOf would number the namespace forever
		}
		before := n.set.Len()
		n.set.Remove(m.keyOf(o))
		if n.set.Len() < before {
			m.spaces.drop(o.namespace)
		}
		return
	}
	d.slot = s
	m.gone.add(o, d)
}

// trim drops the deletions that are too old.
func (m *remembered) trim(now time.Duration) {
	if m != nil {
		m.gone.trim(now)
	}
}

// late returns and removes the recent deletions in the slots.
func (m *remembered) late(set slot.Set, now time.Duration) map[objectName]deletion {
	if m == nil {
		return nil
	}
	return m.gone.take(set, now)
}

// begin returns the number of a new list of the slots.
func (m *remembered) begin(set slot.Set) uint64 {
	if m == nil {
		return 0
	}
	m.passes++
	for _, s := range set.Slots() {
		if n := m.slots[s]; n != nil {
			n.pass = m.passes
			n.set.Clear()
		}
	}
	return m.passes
}

// listed records an object of a list. It ignores slots for which another list has begun since then.
func (m *remembered) listed(pass uint64, s slot.Slot, o objectName) {
	if m == nil {
		return
	}
	if n := m.slots[s]; n != nil && n.pass == pass {
		m.add(n, o)
	}
}

// end removes the names that a complete list did not show, and returns them.
func (m *remembered) end(pass uint64, set slot.Set) map[slot.Slot][]objectName {
	if m == nil {
		return nil
	}
	out := map[slot.Slot][]objectName{}
	for _, s := range set.Slots() {
		n := m.slots[s]
		if n == nil || n.pass != pass {
			continue
		}
		n.set.Sweep(func(key []byte) {
			out[s] = append(out[s], m.nameOf(key))
			m.release(key)
		})
	}
	return out
}

// size returns the number of names, and the memory that they take.
func (m *remembered) size() (count, bytes int) {
	if m == nil {
		return 0, 0
	}
	for _, n := range m.slots {
		count, bytes = count+n.set.Len(), bytes+n.set.Bytes()
	}
	return count, bytes
}

// keyOf returns a name with a number for its namespace. It is valid until the next call.
func (m *remembered) keyOf(o objectName) []byte {
	m.key = binary.AppendUvarint(m.key[:0], m.spaces.number(o.namespace))
	m.key = append(m.key, o.name...)
	return m.key
}

func (m *remembered) nameOf(key []byte) objectName {
	number, length := binary.Uvarint(key)
	return objectName{m.spaces.names[number], string(key[length:])}
}

// release records that a key is no longer in a set.
func (m *remembered) release(key []byte) {
	number, _ := binary.Uvarint(key)
	m.spaces.drop(m.spaces.names[number])
}

// spaces numbers the namespaces that have names.
type spaces struct {
	numbers map[string]uint64
	names   []string // by number
	uses    []int    // by number
	vacant  []uint64
}

func (p *spaces) number(name string) uint64 {
	if number, ok := p.numbers[name]; ok {
		return number
	}
	if p.numbers == nil {
		p.numbers = map[string]uint64{}
	}
	if last := len(p.vacant) - 1; last >= 0 {
		number := p.vacant[last]
		p.vacant = slices.Delete(p.vacant, last, last+1)
		p.numbers[name], p.names[number] = number, name
		return number
	}
	number := uint64(len(p.names))
	p.numbers[name], p.names, p.uses = number, append(p.names, name), append(p.uses, 0)
	return number
}

func (p *spaces) use(name string) { p.uses[p.numbers[name]]++ }

func (p *spaces) drop(name string) {
	number := p.numbers[name]
	if p.uses[number]--; p.uses[number] == 0 {
		delete(p.numbers, name)
		p.vacant = append(p.vacant, number)
	}
}
