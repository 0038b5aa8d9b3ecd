package streamtest

import (
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// digest is a fingerprint: two worlds that have the same one go on in the same way.
type digest [16]byte

// meaning is what matters about a number.
type meaning uint8

const (
	// plain numbers count as they are.
	plain meaning = iota
	// version is one that is compared with others. Only the order matters.
	version
	// bound is a version that is only compared with those that are marked version.
	bound
	// uid tells objects apart.
	uid
	// ticket is that of a list. The order matters, and 0 and 1 as such.
	ticket
	// skipped does not matter.
	skipped
)

// meanings are those of the fields of package stream by name, where their type does not tell: digits are a version, and
// u with digits is a UID. TestMeanings knows that there are such fields.
var meanings = map[string]meaning{
	"ticket": ticket, "got": ticket, "ready": ticket, "want": ticket,
	// It is only compared with the versions of answers.
	"listed": bound,
	// The config is the same everywhere. Lists are counted only so that a task notices (valid, below).
	"cfg": skipped, "lists": skipped, "Lists": skipped,
	// These are told to the caller, and nothing else depends on them.
	"saw": skipped, "since": skipped, "first": skipped, "Fresh": skipped,
	// A search asks when everything is due.
	"due": skipped, "pause": skipped,
}

// encoder collects what matters of a world.
type encoder struct {
	tokens   []token
	versions []int
	tickets  []int
	uids     map[int]int
	bytes    []byte
	fields   map[reflect.Type][]field
}

type token struct {
	meaning meaning
	value   int
}

// digest returns the world's fingerprint. used is what else counts.
func (e *encoder) digest(w *world, used []uint8) digest {
	e.tokens, e.versions, e.tickets = e.tokens[:0], e.versions[:0], append(e.tickets[:0], 0, 1)
	if e.uids == nil {
		e.uids = map[int]int{}
	}
	clear(e.uids)
	for _, n := range used {
		e.add(plain, int(n))
	}
	e.world(w)
	e.rename()
	var gone []int
	for id, n := range e.uids { // of the others nobody hears again
		if w.gone[id] {
			gone = append(gone, n)
		}
	}
	slices.Sort(gone)
	e.bytes = e.bytes[:0]
	for _, t := range e.tokens {
		e.bytes = binary.AppendVarint(e.bytes, int64(t.value))
	}
	for _, n := range gone {
		e.bytes = binary.AppendVarint(e.bytes, int64(n))
	}
	sum := sha256.Sum256(e.bytes)
	return digest(sum[:16])
}

// rename replaces numbers by their ranks.
func (e *encoder) rename() {
	slices.Sort(e.versions)
	e.versions = slices.Compact(e.versions)
	slices.Sort(e.tickets)
	e.tickets = slices.Compact(e.tickets)
	for i := range e.tokens {
		t := &e.tokens[i]
		switch t.meaning {
		case version, bound:
			rank, exact := slices.BinarySearch(e.versions, t.value)
			if t.value = 2 * rank; exact {
				t.value++
			}
		case ticket:
			t.value, _ = slices.BinarySearch(e.tickets, t.value)
		case uid:
			n, ok := e.uids[t.value]
			if !ok {
				n = len(e.uids)
				e.uids[t.value] = n
			}
			t.value = n
		case plain, skipped:
		}
	}
}

func (e *encoder) add(m meaning, value int) {
	switch {
	case m == version && value == 0: // none
		m = plain
	case m == version:
		e.versions = append(e.versions, value)
	case m == ticket:
		e.tickets = append(e.tickets, value)
	default:
	}
	e.tokens = append(e.tokens, token{m, value})
}

func (e *encoder) flags(values ...bool) {
	for _, v := range values {
		n := 0
		if v {
			n = 1
		}
		e.add(plain, n)
	}
}

func (e *encoder) set(s slot.Set) {
	bits := 0
	for _, n := range s.Slots() {
		bits |= 1 << n
	}
	e.add(plain, bits)
}

// state adds an object, whose version has a meaning. What does not exist has a version only.
func (e *encoder) state(o state, m meaning) {
	if m != skipped {
		e.add(m, o.version)
	}
	e.flags(o.exists)
	if !o.exists {
		return
	}
	e.add(plain, o.name)
	e.add(uid, o.uid)
	e.add(plain, int(o.slot))
	e.add(plain, int(o.label))
	e.flags(o.in)
}

func (e *encoder) states(of []state, m meaning) {
	e.add(plain, len(of))
	for _, o := range of {
		e.state(o, m)
	}
}

func (e *encoder) world(w *world) {
	e.states(w.server.has, version)
	e.states(w.store, bound)
	for n := range w.store {
		e.add(bound, w.put[n])
		e.add(bound, w.left[n])
	}
	e.flags(w.wrong...)
	e.set(w.asked)
	e.set(w.held)

	from := min(w.next, w.position()) // what is before is not told any more
	e.flags(w.whole != nil, w.task != nil)
	if l := w.whole; l != nil {
		from = min(from, w.indexOf(l.version))
		e.states(l.items, version)
		e.add(version, l.version)
		e.walk(reflect.ValueOf(l.list), plain)
	}
	e.add(plain, w.next-from)
	e.add(plain, len(w.server.log)-from)
	for _, c := range w.server.log[from:] {
		e.state(c.before, skipped)
		e.state(c.after, version)
	}
	if t := w.task; t != nil {
		e.flags(w.core.Valid(t.Task))
		e.walk(reflect.ValueOf(t.Task), plain)
		e.walk(reflect.ValueOf(t.settling), plain)
		e.add(plain, t.stage)
		e.states(t.items, version)
		e.add(version, t.version)
		for n, uid := range t.verified {
			e.flags(uid == w.store[n].uid)
		}
	}
	e.walk(reflect.ValueOf(w.core), plain)
	e.looks(w)
}

// looks adds answers that are on their way to doubts that still stand.
func (e *encoder) looks(w *world) {
	for _, k := range w.looks {
		if _, _, current := w.core.Asks(k.doubt); !current {
			continue
		}
		n, _ := strconv.Atoi(k.doubt.Name.Name)
		at, _ := strconv.Atoi(k.version)
		e.add(plain, n)
		e.add(version, at)
		e.flags(k.found != nil)
		if k.found != nil {
			e.state(k.found.Body.(state), version)
		}
	}
}

var (
	setType   = reflect.TypeFor[slot.Set]()
	stateType = reflect.TypeFor[state]()
	nameType  = reflect.TypeFor[stream.Name]()
)

// walk adds what a value of package stream holds. m is what its numbers mean.
func (e *encoder) walk(v reflect.Value, m meaning) {
	switch v.Type() {
	case setType:
		e.add(plain, int(v.Field(0).Index(0).Uint())) // a few slots
		return
	case stateType:
		e.state(stateOf(v), version)
		return
	case nameType:
		n, _ := strconv.Atoi(v.Field(1).String())
		e.add(plain, n)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		e.flags(v.Bool())
	case reflect.String:
		e.text(v.String(), m)
	case reflect.Pointer, reflect.Interface:
		e.flags(v.IsNil())
		if !v.IsNil() {
			e.walk(v.Elem(), m)
		}
	case reflect.Slice:
		e.flags(v.IsNil())
		e.add(plain, v.Len())
		for i := range v.Len() {
			e.walk(v.Index(i), m)
		}
	case reflect.Map:
		e.table(v, m)
	case reflect.Struct:
		for _, f := range e.fieldsOf(v.Type()) {
			if f.meaning == skipped {
				continue
			}
			if f.meaning == plain {
				f.meaning = m
			}
			e.walk(v.Field(f.index), f.meaning)
		}
	default:
		if v.CanInt() {
			e.add(m, int(v.Int()))
		} else {
			e.add(m, int(v.Uint()))
		}
	}
}

// text adds a name, a version or a UID.
func (e *encoder) text(text string, m meaning) {
	if id, ok := strings.CutPrefix(text, "u"); ok {
		text, m = id, uid
	}
	n, err := strconv.Atoi(text)
	switch {
	case text == "":
		n, m = -1, plain
	case err != nil:
		panic("streamtest: the text " + strconv.Quote(text) + " means nothing")
	case m == plain:
		m = version
	}
	e.add(m, n)
}

// table adds a map, by the order of its keys.
func (e *encoder) table(v reflect.Value, m meaning) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.Type() == nameType {
			return strings.Compare(a.Field(1).String(), b.Field(1).String())
		}
		return int(a.Uint()) - int(b.Uint())
	})
	e.add(plain, len(keys))
	for _, k := range keys {
		e.walk(k, plain)
		e.walk(v.MapIndex(k), m)
	}
}

// stateOf returns the state in an unexported field.
func stateOf(v reflect.Value) state {
	return state{
		name: int(v.Field(0).Int()), uid: int(v.Field(1).Int()), version: int(v.Field(2).Int()),
		slot: slot.Slot(v.Field(3).Uint()), in: v.Field(4).Bool(),
		label: slot.Slot(v.Field(5).Uint()), exists: v.Field(6).Bool(),
	}
}

// field is one that is looked at.
type field struct {
	index   int
	meaning meaning
}

func (e *encoder) fieldsOf(t reflect.Type) []field {
	if known, ok := e.fields[t]; ok {
		return known
	}
	if e.fields == nil {
		e.fields = map[reflect.Type][]field{}
	}
	var out []field
	for i := range t.NumField() {
		out = append(out, field{i, meanings[t.Field(i).Name]})
	}
	e.fields[t] = out
	return out
}
