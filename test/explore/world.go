package explore

import (
	"fmt"
	"strconv"

	"github.com/rota-dev/rota/internal/protocol/inspect"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// world is a state that is looked at, and changed: parts are copied when that begins.
type world struct {
	x     *space
	state state
	boxes [maxPods]*box // changed ones
	srv   *server       // changed
	// lose is which of the requests of this transition, from 0, goes astray; -1: none.
	lose, sent int
	// renewed is when the renewal was sent whose answer this transition delivers; 0: none.
	renewed    int
	violations []Violation
	explain    func(format string, args ...any)
}

// Violation is a broken promise.
type Violation struct {
	// Rule is a short name of what was broken, as in package sim where that checks the same.
	Rule    string
	Message string
}

func (x *space) look(s state) world { return world{x: x, state: s, lose: -1} }

func (w *world) box(pod int) *box {
	if b := w.boxes[pod]; b != nil {
		return b
	}
	return w.x.boxes.items[w.state.boxes[pod]]
}

func (w *world) change(pod int) *box {
	if w.boxes[pod] == nil {
		w.boxes[pod] = w.x.boxes.items[w.state.boxes[pod]].clone()
	}
	return w.boxes[pod]
}

func (w *world) server() *server {
	if w.srv != nil {
		return w.srv
	}
	return w.x.servers.items[w.state.server]
}

func (w *world) changeServer() *server {
	if w.srv == nil {
		w.srv = w.x.servers.items[w.state.server].clone()
	}
	return w.srv
}

func (w *world) member(pod int) *member.Member { return w.x.members.items[w.state.members[pod]] }

// pack returns the state that the world has come to.
func (w *world) pack() state {
	s := w.state
	if w.srv != nil {
		w.srv.tidy()
		s.server = w.x.addServer(w.srv)
	}
	for i := range w.x.Pods {
		if w.boxes[i] != nil {
			s.boxes[i] = w.x.addBox(w.boxes[i], i)
		}
	}
	return w.x.normal(s)
}

func (w *world) violate(rule, format string, args ...any) {
	w.violations = append(w.violations, Violation{rule, fmt.Sprintf(format, args...)})
}

func (w *world) say(format string, args ...any) {
	if w.explain != nil {
		w.explain(format, args...)
	}
}

// begin returns the world in which nothing has been started.
func (x *space) begin() state {
	var s state
	for i := range x.Pods {
		s.boxes[i] = x.addBox(&box{
			gate: make([]gateSlot, x.total()), horizon: make([]int, x.total()), left: make([]int, x.total()),
		}, i)
	}
	s.server = x.addServer(&server{
		table: snap{version: top}, version: top, leases: make([]held, maxPods*maxIncs), slots: make([]slotHistory, x.total()),
	})
	return s
}

// start starts a pod's next incarnation, in a new process or in that of its former ones.
func (w *world) start(pod int, newProcess bool) {
	b := w.change(pod)
	inc, former := b.inc+1, b.former
	if newProcess {
		former = inc
	}
	*b = box{life: running, inc: inc, former: former, gate: b.gate, horizon: b.horizon, left: b.left}
	b.tables, b.listed = []snap{w.server().table}, true
	b.came(w.x, byTables, answer{})
	x := w.x
	m := member.New(x.memberConfig(pod, inc, former)) // it is due a Tick at once
	x.clean(m)
	w.state.members[pod] = x.addMember(m)
}

// deliver steps a pod's member, and carries out what it wants done.
func (w *world) deliver(pod int, e member.Event) {
	lapsed := inspect.Look(w.member(pod)).Lapsed
	id, actions := w.x.step(w.state.members[pod], e)
	w.state.members[pod] = id
	w.checkResumed(pod, lapsed, e)
	if w.explain != nil {
		w.say("%s ← %v", w.id(pod), e)
	}
	for _, a := range actions {
		if w.explain != nil {
			w.say("%s → %v", w.id(pod), a)
		}
		w.carryOut(pod, a)
	}
}

func (w *world) id(pod int) string { return w.x.name(w.x.leaseIndex(pod, w.box(pod).inc)) }

func (w *world) self(pod int) uint8 { return w.x.leaseIndex(pod, w.box(pod).inc) }

func version(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func number(s string) int {
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func tableUID(n uint8) string {
	if n == 0 {
		return ""
	}
	return "t" + strconv.Itoa(int(n))
}

func uidOf(s string) uint8 {
	if s == "" {
		return 0
	}
	return uint8(number(s[1:]))
}

func (s snap) snapshot() member.Snapshot {
	return member.Snapshot{UID: tableUID(s.uid), Version: version(s.version), Table: s.table}
}

func (x *space) leaseEvent(l leaseAt) member.Lease {
	id := x.name(l.index)
	return member.Lease{
		ID: id, UID: "lease-" + id, Version: version(l.version), Epoch: uint64(l.epoch), TableUID: tableUID(l.uid),
		Open: l.open, Format: table.Format,
	}
}
