package explore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// A checker has to look into a member.Member: to copy it, to compare it, to rename the numbers in it. The types here have
// the same fields as those of package member, in the same order; sameLayout makes sure of it, and so fails when a field is
// added there whose meaning for the search is not said here.

type mirror struct {
	cfg    member.Config
	rng    *rand.Rand
	now    member.Time
	out    []member.Action
	wake   time.Duration
	serial uint64
	phase  phase

	lease leaseMirror
	read  readMirror
	watch watchMirror

	snap      member.Snapshot
	known     string
	gone      map[string]bool
	floor     string
	seenAt    time.Duration
	trail     trailMirror
	epochs    map[string]uint64
	toldAt    time.Duration
	top       uint64
	lapsed    bool
	readAfter time.Duration
	trouble   troubleMirror

	slots    []slotMirror
	ahead    aheadMirror
	gather   time.Duration
	followed string
	order    orderMirror
	swap     swapMirror
	plan     planMirror
	refused  error
	met      bool
	buried   map[string]bool
	burying  map[string]bool
}

type phase uint8

const (
	starting phase = iota
	joining
	joined
	leaving
	parting
	ended
)

type leaseMirror struct {
	mine     member.Lease
	start    time.Duration
	underWay bool
	next     time.Duration
	failed   bool
	said     bool
	open     bool
	saidAt   time.Duration
}

type readMirror struct {
	wanted, underWay bool
	retryAt          time.Duration
}

type watchMirror struct {
	serial   uint64
	all      bool
	ids      []string
	complete bool
	since    string
	heard    time.Duration
	echo     time.Duration
	version  string
	others   map[string]*otherMirror
	step     time.Duration
	capped   bool
	suspects bool
}

type trailMirror struct {
	known, begun, last string
	doubted            time.Duration
}

type otherMirror struct {
	lease    member.Lease
	missing  bool
	renewals int
	since    time.Duration
	pending  bool
	seen     time.Duration
	shut     time.Duration
	shutting bool
}

type troubleMirror struct {
	on        bool
	since     time.Duration
	pending   bool
	confirmed bool
	early     bool
	witness   string
}

type slotState uint8

const (
	away slotState = iota
	warming
	warm
	fenced
	loading
	loaded
	open
	draining
	drained
	sent
)

type slotMirror struct {
	state     slotState
	epoch     uint64
	heldSince uint64
	sentAt    uint64
	round     uint64
	until     time.Duration
	versions  table.Versions
	cause     table.Cause
	gone      []table.Gone
}

type aheadMirror struct {
	slots   slot.Set
	heard   time.Duration
	version string
	phase   phase
	key     string
}

type orderMirror struct {
	version string
	members []*table.Member
	ids     []string
	low     int
	high    int
}

type swapMirror struct {
	underWay                       bool
	serial                         uint64
	version                        string
	refused                        string
	retryAt                        time.Duration
	unknown                        string
	conflicts                      int
	ready, transfer, settle, abort time.Duration
}

type planMirror struct {
	seen    map[string]time.Duration
	buryAt  time.Duration
	since   time.Duration
	key     string
	target  []string
	looked  string
	mourned int
	lookAt  time.Duration
	fresh   time.Duration
}

// mirrorOf looks at a member as it is; the result shares everything with it.
func mirrorOf(m *member.Member) *mirror { return (*mirror)(unsafe.Pointer(m)) }

func (m *mirror) member() *member.Member { return (*member.Member)(unsafe.Pointer(m)) }

// clone returns a copy that shares only what is never changed: tables, the last assignment, and the source of
// randomness, which is not used since every jitter is 0.
func (m *mirror) clone() *mirror {
	c := *m
	c.out = nil
	c.gone, c.epochs = maps.Clone(m.gone), maps.Clone(m.epochs)
	c.buried, c.burying = maps.Clone(m.buried), maps.Clone(m.burying)
	c.slots = slices.Clone(m.slots)
	c.watch.ids = slices.Clone(m.watch.ids)
	c.watch.others = make(map[string]*otherMirror, len(m.watch.others))
	for id, o := range m.watch.others {
		copied := *o
		c.watch.others[id] = &copied
	}
	c.plan.seen = maps.Clone(m.plan.seen)
	c.order, c.ahead = orderMirror{}, aheadMirror{}
	return &c
}

// sameLayout returns an error unless two types have the same fields, by name, type and place.
func sameLayout(path string, a, b reflect.Type) error {
	switch {
	case a == b:
		return nil
	case a.Kind() != b.Kind() || a.Size() != b.Size():
		return fmt.Errorf("%s: %v is not %v", path, a, b)
	}
	switch a.Kind() { //nolint:exhaustive // the others have nothing inside
	case reflect.Struct:
		for i := range max(a.NumField(), b.NumField()) {
			if i >= a.NumField() || i >= b.NumField() {
				return fmt.Errorf("%s: %d and %d fields", path, a.NumField(), b.NumField())
			}
			f, g := a.Field(i), b.Field(i)
			if f.Name != g.Name || f.Offset != g.Offset {
				return fmt.Errorf("%s: field %s is not %s", path, f.Name, g.Name)
			}
			if err := sameLayout(path+"."+f.Name, f.Type, g.Type); err != nil {
				return err
			}
		}
	case reflect.Map:
		if a.Key() != b.Key() {
			return fmt.Errorf("%s: keys %v and %v", path, a.Key(), b.Key())
		}
		return sameLayout(path+"[]", a.Elem(), b.Elem())
	case reflect.Slice, reflect.Pointer:
		return sameLayout(path+"[]", a.Elem(), b.Elem())
	case reflect.Interface, reflect.Func, reflect.Chan:
		return fmt.Errorf("%s: %v is not %v", path, a, b)
	}
	return nil
}

// checkLayout says whether this package knows the member that it is compiled with.
func checkLayout() error {
	return sameLayout("Member", reflect.TypeFor[member.Member](), reflect.TypeFor[mirror]())
}

func slotsOf(mask uint8) (set slot.Set) {
	for s := range slot.Slot(8) {
		if mask>>s&1 != 0 {
			set.Add(s)
		}
	}
	return set
}

func maskOf(set slot.Set, slots slot.Count) (mask uint8) {
	for s := range slot.Slot(slots) {
		if set.Has(s) {
			mask |= 1 << s
		}
	}
	return mask
}
