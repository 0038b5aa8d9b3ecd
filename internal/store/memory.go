package store

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/rota-dev/rota/member"
)

// Memory is the in-memory twin of Kubernetes: one Memory holds the objects of one rota, and serves any number of
// members by a Client each. It starts no goroutine and needs no closing.
type Memory struct {
	mu      sync.Mutex
	objects *Objects
	// changed is closed, and replaced, when there is something for the watches.
	changed chan struct{}
	// breaks counts the calls of Disconnect.
	breaks int
	counts Counts
	notes  []member.Notify
}

// Counts says what a Memory was asked for.
type Counts struct {
	// Requests are the requests by operation; for watches, how often each was opened.
	Requests map[Op]int
	// Events are the changes delivered to watches, one per watch and change, without the first state.
	Events int
}

// Op is a method of Store.
type Op string

// Ops.
const (
	OpReadTable   Op = "ReadTable"
	OpWatchTable  Op = "WatchTable"
	OpCreateTable Op = "CreateTable"
	OpSwapTable   Op = "SwapTable"
	OpCreateLease Op = "CreateLease"
	OpRenewLease  Op = "RenewLease"
	OpDeleteLease Op = "DeleteLease"
	OpWatchLeases Op = "WatchLeases"
	OpNotify      Op = "Notify"
)

// ErrLost is for hooks: the connection was lost, and nobody knows what became of the request.
var ErrLost = errors.New("connection lost")

// Hook injects faults. It is called by the goroutine of the request before its effect (after is false), and after it.
//
// An error before: there is no effect; the outcome is OutcomeUnknown if it is ErrLost, OutcomeFailed otherwise.
// An error after: there is an effect, but the response is lost. It may block, until ctx ends at the latest, as the
// network does; a request whose time runs out before its effect has none, with OutcomeUnknown. An error for a watch
// is one failure to open it.
type Hook func(ctx context.Context, op Op, after bool) error

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{objects: NewObjects(), changed: make(chan struct{}), counts: Counts{Requests: map[Op]int{}}}
}

// Client returns the store as one member sees it. hook may be nil.
func (m *Memory) Client(hook Hook) *Client {
	if hook == nil {
		hook = func(context.Context, Op, bool) error { return nil }
	}
	return &Client{memory: m, hook: hook}
}

// Do gives access to the objects, past all clients: to look, or to tamper. f must not call back into the Memory.
func (m *Memory) Do(f func(*Objects)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.objects.Version()
	f(m.objects)
	if m.objects.Version() != before {
		m.wake()
	}
}

// Disconnect breaks every watch; they reconnect. With forget, what they missed by then is lost to them.
func (m *Memory) Disconnect(forget bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if forget {
		m.objects.Forget()
	}
	m.breaks++
	m.wake()
}

// Counts returns what was asked for up to now.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Counts{Requests: maps.Clone(m.counts.Requests), Events: m.counts.Events}
}

// Notes returns what was told to people, oldest first.
func (m *Memory) Notes() []member.Notify {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]member.Notify(nil), m.notes...)
}

func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Memory) count(op Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Requests[op]++
}
