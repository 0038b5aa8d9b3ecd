package explore

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// visitStates shows states of a small search.
func visitStates(t *testing.T, nth int, look func(x *space, st state, a act)) {
	t.Helper()
	sc, _ := ScopeOf("pause")
	s := NewSearch(sc)
	s.Run(20_000)
	for i := 0; i < len(s.states); i += nth {
		w := s.x.look(s.states[i])
		for _, a := range w.enabled(nil) {
			look(s.x, s.states[i], a)
		}
	}
}

// A clone steps as its original, which does not hear of it.
func TestClone(t *testing.T) {
	visitStates(t, 50, func(x *space, st state, a act) {
		if a.kind >= advance && a.kind != leave {
			return
		}
		w := x.look(st)
		e := w.take(int(a.pod), a)
		m := x.members.items[st.members[a.pod]]
		bytes := func(m *member.Member) string {
			var b encoder
			x.encode(m, &b)
			return string(b)
		}
		before := bytes(m)
		var ends [2]string
		var actions [2][]member.Action
		for i := range ends {
			c := clone(m)
			actions[i] = c.Step(member.Time{Mono: base, Wall: wall}, e)
			x.clean(c)
			ends[i] = bytes(c)
		}
		if ends[0] != ends[1] || !reflect.DeepEqual(actions[0], actions[1]) {
			t.Fatalf("%s: two clones step differently: %v, %v", x.describe(a), actions[0], actions[1])
		}
		if bytes(m) != before {
			t.Fatalf("%s: the original changed with its clone", x.describe(a))
		}
	})
}

// Only the order of versions, epochs and serials matters, and that of the times that are renamed: what follows from a
// state with other numbers is the same.
func TestNumbers(t *testing.T) {
	other := visit(func(class uint8, v int) int {
		switch class {
		case classEpoch:
			return 4*v + 13
		case classSerial:
			return top - 3*(top-v)
		case classOrder:
			return base - 2*(base-v)
		default:
			return 2*v + 1
		}
	})
	visitStates(t, 50, func(x *space, st state, a act) {
		renamed := st
		for i := range x.Pods {
			if id := st.members[i]; id != 0 {
				m := clone(x.members.items[id])
				x.numbers(m, other)
				renamed.members[i] = x.addMember(m)
			}
			b := x.boxes.items[st.boxes[i]].clone()
			b.numbers(x, i, other)
			renamed.boxes[i] = x.addBox(b, i)
		}
		s := x.servers.items[st.server].clone()
		s.numbers(x, other)
		renamed.server = x.addServer(s)
		w, v := x.look(st), x.look(renamed)
		w.do(a)
		v.do(a)
		if w.pack() != v.pack() {
			t.Fatalf("%s: other numbers lead elsewhere", x.describe(a))
		}
	})
}

// The gate of a box is that of package gate.
func TestGate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		now := time.Duration(base)
		g := gate.New(1, func() time.Duration { return now })
		g.Hold(0) // drains do not end, and are hard: nothing takes long
		b := &box{gate: make([]gateSlot, 1), horizon: make([]int, 1), left: make([]int, 1)}
		x := newSpace(Scope{Pods: 1, Slots: 1})
		set := slotsOf(1)
		var offset int // b's now is always base
		for range 20 {
			switch rng.IntN(6) {
			case 0:
				g.Open(set, 7)
				b.open(0, 7)
			case 1:
				g.Shut(set)
				b.shut(0)
			case 2:
				g.Drain(set, func(slot.Slot) bool { return false }, func(slot.Slot) {})
				if b.gate[0].state == gateOpen {
					b.gate[0].state = gateDraining
				}
			case 3:
				at := rng.IntN(4)
				g.SetDeadline(now + time.Duration(at))
				b.setDeadline(base + at)
			case 4:
				g.Expire()
			case 5:
				now++
				offset++
				b.shift(x)
				g.Expire()
			}
			ctx, leave, verdict := g.Enter(context.Background(), 0, gate.Key{Name: "k"}, false)
			admitted := verdict == gate.Admitted && ctx.Err() == nil
			if leave != nil {
				leave()
			}
			if want := b.working(0) && b.gate[0].state == gateOpen; admitted != want {
				t.Fatalf("the gate admits: %v, the box's: %v", admitted, want)
			}
		}
	}
}

// Small worlds are searched to the end, large ones begun. Nothing is violated, no state is a dead end, and every kind
// of action occurs.
func TestFixpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("searches half a million states")
	}
	var counts [kinds]int
	for _, sc := range Scopes {
		states, nth := 1_000_000, 1
		if sc.Long {
			states, nth = 5_000, 97
		}
		s := NewSearch(sc)
		s.Run(states)
		calm := Calm{}
		if s.Found == nil {
			calm = s.Settle(nth)
		}
		t.Logf("%-6s %v; %v", sc.Name, s, calm)
		if s.Found != nil {
			t.Fatalf("%s: %v\n%s", sc.Name, s.Found.Violation, s.Script())
		}
		if !s.Fixpoint && !sc.Long {
			t.Errorf("%s: %v", sc.Name, s)
		}
		for k, n := range s.Counts {
			counts[k] += n
		}
	}
	for k, n := range counts {
		if n == 0 {
			t.Errorf("%v never happened", kind(k))
		}
	}
}

// The beginning of every scope: nothing is violated, and whatever happened, all is well in the end without further
// faults. make check WHAT=explore goes further.
func TestScopes(t *testing.T) {
	states := 15_000
	if testing.Short() {
		states = 4_000
	}
	for _, sc := range Scopes {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			s := NewSearch(sc)
			s.Run(states)
			if s.Found == nil {
				s.Settle(37)
			}
			if s.Found != nil {
				t.Fatalf("%s: %s\nThis repeats it: go run ./test/explore/cmd -scopes %s -states %d -save FILE", s.Found.Violation.Rule,
					s.Found.Violation.Message, sc.Name, states)
			}
		})
	}
}
