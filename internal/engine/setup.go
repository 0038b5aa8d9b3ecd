package engine

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// setup tracks what is set up before a member joins: what Run waits for, and whether more may be added. The zero value
// is ready to use.
type setup struct {
	mu      sync.Mutex
	started []start
	inner   map[any]string // underlying work queues, with the names of the queues that use them
	ran     bool           // Run was called
	// after holds the prerequisites from JoinAfter. over is true once nothing more can be set up; finish is called then.
	after  []prerequisite
	over   bool
	finish []func(context.Context) error
}

// begin records that Run was called. It returns false if it had been called before.
func (s *setup) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		return false
	}
	s.ran = true
	return true
}

// late reports whether it is too late to set something up.
func (s *setup) late() bool { return !s.during(func() {}) }

// during calls f, which sets something up. If it is too late for that, it returns false instead.
func (s *setup) during(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran && (s.over || len(s.after) == 0) {
		return false
	}
	f()
	return true
}

// goesOn reports whether Run waits, or will wait, for something to be set up.
func (s *setup) goesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over && len(s.after) > 0
}

// waits adds a prerequisite for which Run waits. It returns false if Run was called.
func (s *setup) waits(p prerequisite) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		return false
	}
	s.after = append(s.after, p)
	return true
}

func (s *setup) prerequisites() []prerequisite {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.after)
}

// atEnd has f called once nothing more can be set up.
func (s *setup) atEnd(f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish = append(s.finish, f)
}

// end records that nothing more can be set up, and returns the functions to call.
func (s *setup) end() []func(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.finish
}

// needs adds an informer that must run before the member joins.
func (s *setup) needs(informer start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = append(slices.Clip(s.started), informer)
}

func (s *setup) informers() []start {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// take records which Queue uses a work queue. Two Queues on one work queue would each believe that items the other took
// are still waiting.
func (s *setup) take(name string, inner any) error {
	if !reflect.TypeOf(inner).Comparable() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner, taken := s.inner[inner]; taken {
		return fmt.Errorf("queue %s: queue %s already uses its work queue: make a work queue for each", name, owner)
	}
	_, ours := inner.(interface{ isQueue() })
	if _, adapters := inner.(interface{ IsQueue() }); ours || adapters {
		return fmt.Errorf("queue %s: its work queue is a Queue of the rota already", name)
	}
	if s.inner == nil {
		s.inner = map[any]string{}
	}
	s.inner[inner] = name
	return nil
}
