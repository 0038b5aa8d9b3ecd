package controllers

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// faultPeriod is the time between two log lines about a recurring fault, and how long after its last occurrence a fault
// is forgotten.
const faultPeriod = time.Minute

// Faults collects wiring mistakes that show while the member works. Its methods may be called concurrently.
type Faults struct {
	now func() time.Duration
	log logr.Logger

	mu sync.Mutex
	of map[string]*fault
}

type fault struct {
	text         string
	times        int
	logged, last time.Duration
}

// NewFaults returns an empty Faults. now returns the monotonic time.
func NewFaults(now func() time.Duration, log logr.Logger) *Faults {
	return &Faults{now: now, log: log, of: map[string]*fault{}}
}

// Note records that something is wired wrongly. It logs at once, and from time to time while the fault recurs.
func (a *Faults) Note(of, id, text string, details ...any) {
	now := a.now()
	a.mu.Lock()
	f := a.of[of+" "+id]
	if f == nil {
		f = &fault{text: of + ": " + text, logged: now - faultPeriod}
		a.of[of+" "+id] = f
	}
	f.times++
	f.last = now
	times := f.times
	due := now-f.logged >= faultPeriod
	if due {
		f.logged = now
	}
	a.mu.Unlock()
	if due {
		a.log.Error(nil, f.text, append([]any{"times", times}, details...)...)
	}
}

// Err returns the faults of the last minute, or nil.
func (a *Faults) Err() error {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(a.of)) {
		if f := a.of[id]; now-f.last < faultPeriod {
			errs = append(errs, errors.New(f.text))
		}
	}
	return errors.Join(errs...)
}
