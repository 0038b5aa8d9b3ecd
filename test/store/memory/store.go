// Package memory is a store.Store in memory, for tests and the simulator. Faults can be injected into it.
package memory

import (
	"context"
	"errors"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/election"
	"github.com/rota-dev/rota/internal/protocol/member"
)

// Store is Kubernetes in memory. One Store holds the objects of one rota. It serves any number of members, each by a
// Client. It starts no goroutine and need not be closed.
type Store struct {
	mu      sync.Mutex
	objects *Objects
	// changed is closed and replaced when there is something for the watches.
	changed chan struct{}
	// breaks counts the calls of Disconnect.
	breaks int
	counts Counts
	notes  []member.Notify
	// elections are the Leases of leader elections, and written counts their versions.
	elections map[types.NamespacedName]election.Record
	written   int
}

// Counts says how often a Store was asked for what.
type Counts struct {
	// Requests are the requests by operation. For watches it is how often one was opened.
	Requests map[Op]int
	// Events are the changes delivered to watches, one per watch and change, without the first state.
	Events int
}

// Op is a method of store.Store.
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

	OpReadElection  Op = "ReadElection"
	OpWriteElection Op = "WriteElection"
	OpWatchElection Op = "WatchElection"
)

// ErrLost is for hooks: the connection was lost, and nobody knows whether the request had an effect.
var ErrLost = errors.New("connection lost")

// Hook injects faults. It is called by the goroutine of the request before its effect (after is false), and after it.
//
// If it returns an error before, there is no effect, and the outcome is OutcomeUnknown for ErrLost and OutcomeFailed
// otherwise. If it returns an error after, there is an effect, but the response is lost. An error for a watch is one
// failure to open it. A Hook may block, as the network does, but not after ctx has ended. A request whose time runs out
// before its effect has no effect, with OutcomeUnknown.
type Hook func(ctx context.Context, op Op, after bool) error

// New returns an empty store.
func New() *Store {
	return &Store{objects: NewObjects(), changed: make(chan struct{}), counts: Counts{Requests: map[Op]int{}},
		elections: map[types.NamespacedName]election.Record{}}
}

// Client returns the store as one member sees it. hook may be nil.
func (m *Store) Client(hook Hook) *Client {
	if hook == nil {
		hook = func(context.Context, Op, bool) error { return nil }
	}
	return &Client{memory: m, hook: hook}
}

// Do gives access to the objects without a client, to look or to tamper. f must not call back into the Store.
func (m *Store) Do(f func(*Objects)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.objects.Version()
	f(m.objects)
	if m.objects.Version() != before {
		m.wake()
	}
}

// Disconnect breaks every watch. They reconnect. With forget, they never see what they missed by then.
func (m *Store) Disconnect(forget bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if forget {
		m.objects.Forget()
	}
	m.breaks++
	m.wake()
}

// Counts returns the counts up to now.
func (m *Store) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Counts{Requests: maps.Clone(m.counts.Requests), Events: m.counts.Events}
}

// Notes returns the events of Notify, oldest first.
func (m *Store) Notes() []member.Notify {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]member.Notify(nil), m.notes...)
}

func (m *Store) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Store) count(op Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Requests[op]++
}
