package keeper

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
)

const (
	// recall is how long a deletion is remembered that was another member's to hand out, and recallMax how many are, of
	// each kind and namespace that is followed. Slots of a dead member are taken over within that time.
	recall    = 5 * time.Minute
	recallMax = 100_000
)

// objectName is a name in a namespace.
type objectName struct{ namespace, name string }

// remembered has what a list cannot tell: names of objects that were there. A nil one remembers nothing.
//
// Of the slots that are held it has the names of all objects. A list that does not show one of them any more tells of a
// deletion. Of the other slots it has the deletions of late: if their owner dies, it may not have handed them out.
//
// It is not safe for concurrent use.
type remembered struct {
	spaces spaces
	slots  map[slot.Slot]*names
	passes uint64

	gone recalled[objectName]
	key  []byte // reused
}

// names are those of a slot. pass is the last list that began.
type names struct {
	set  nameSet
	pass uint64
}

func newRemembered() *remembered {
	return &remembered{slots: map[slot.Slot]*names{}, gone: newRecalled[objectName](recall, recallMax)}
}

// hold has the names of the slots' objects count.
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

// shut forgets the slots' names.
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

// exists notes an event of an object that exists.
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

// deleted notes an event of an object that was deleted.
func (m *remembered) deleted(s slot.Slot, o objectName, d deletion) {
	if m == nil {
		return
	}
	if n := m.slots[s]; n != nil {
		if _, known := m.spaces.numbers[o.namespace]; !known {
			return // keyOf would number the namespace for ever
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

// trim forgets the deletions that are too old.
func (m *remembered) trim(now time.Duration) {
	if m != nil {
		m.gone.trim(now)
	}
}

// late returns the deletions of late in the slots, and forgets them.
func (m *remembered) late(set slot.Set, now time.Duration) map[objectName]deletion {
	if m == nil {
		return nil
	}
	return m.gone.take(set, now)
}

// begin returns the number of a list of the slots that begins.
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

// listed notes an object of a list. Of a slot of which another list has begun since then it proves nothing.
func (m *remembered) listed(pass uint64, s slot.Slot, o objectName) {
	if m == nil {
		return
	}
	if n := m.slots[s]; n != nil && n.pass == pass {
		m.add(n, o)
	}
}

// end forgets the names that a complete list did not show, and returns them.
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

// size returns how many names there are, and how much memory they take.
func (m *remembered) size() (count, bytes int) {
	if m == nil {
		return 0, 0
	}
	for _, n := range m.slots {
		count, bytes = count+n.set.Len(), bytes+n.set.Bytes()
	}
	return count, bytes
}

// keyOf returns a name with its namespace as a number. It is valid until the next call.
func (m *remembered) keyOf(o objectName) []byte {
	m.key = binary.AppendUvarint(m.key[:0], m.spaces.number(o.namespace))
	m.key = append(m.key, o.name...)
	return m.key
}

func (m *remembered) nameOf(key []byte) objectName {
	number, length := binary.Uvarint(key)
	return objectName{m.spaces.names[number], string(key[length:])}
}

// release notes that a key is no longer in a set.
func (m *remembered) release(key []byte) {
	number, _ := binary.Uvarint(key)
	m.spaces.drop(m.spaces.names[number])
}

// spaces numbers namespaces, as long as they have names.
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
