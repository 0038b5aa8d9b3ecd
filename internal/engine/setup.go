package engine

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// setup is what is set up before a member joins: what it has to wait for, and until when something may be added. The
// zero value is that of a Rota that was just made.
type setup struct {
	mu      sync.Mutex
	started []start
	inner   map[any]string // the work queues that belong to queues, with the queues' names
	ran     bool           // Run was called
	// after is what JoinAfter was told. over says that nothing can be set up any more; finish is called then.
	after  []prerequisite
	over   bool
	finish []func(context.Context) error
}

// begin notes that Run was called. It returns false if it was before.
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

// during calls a function that sets something up, unless it is too late: it returns false then.
func (s *setup) during(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran && (s.over || len(s.after) == 0) {
		return false
	}
	f()
	return true
}

// goesOn reports whether Run waits, or will wait, until something is set up.
func (s *setup) goesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over && len(s.after) > 0
}

// waits adds what Run waits for before it is over. It returns false if Run was called.
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

// atEnd has a function called when nothing can be set up any more.
func (s *setup) atEnd(f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish = append(s.finish, f)
}

// end notes that nothing can be set up any more, and returns what has to be called.
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

// take notes which Queue a work queue belongs to. Two Queues would each believe that items taken by the other still
// wait.
func (s *setup) take(name string, inner any) error {
	if !reflect.TypeOf(inner).Comparable() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner, taken := s.inner[inner]; taken {
		return fmt.Errorf("queue %s: its work queue is that of queue %s already: make a work queue for each", name, owner)
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
