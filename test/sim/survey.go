package sim

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Survey is what came of many lives.
type Survey struct {
	Lives    int
	Counts   Counts
	Coverage Coverage
	Failures []Failure
}

// Failure is a life in which something was violated.
type Failure struct {
	Seed uint64
	At   time.Duration
	Violation
}

// String tells it in a line.
func (f Failure) String() string {
	return fmt.Sprintf("seed %d after %v: %v", f.Seed, f.At.Round(time.Millisecond), f.Violation)
}

// Seeds lives through n seeds from first on, as many at a time as there are processors. tell, which may be nil, hears
// after each life, from one goroutine at a time, and says whether to go on.
func Seeds(first uint64, n int, tell func(*Survey) bool) Survey {
	var (
		s     Survey
		mu    sync.Mutex
		group sync.WaitGroup
		next  atomic.Uint64
	)
	next.Store(first)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1) - 1; seed < first+uint64(n); seed = next.Add(1) - 1 {
				w := RunChaos(seed, nil)
				mu.Lock()
				s.count(seed, w)
				if tell != nil && !tell(&s) {
					next.Store(first + uint64(n))
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.SortFunc(s.Failures, func(a, b Failure) int { return cmp.Compare(a.Seed, b.Seed) })
	return s
}

func (s *Survey) count(seed uint64, w *World) {
	one := Survey{Lives: 1, Counts: w.Counts, Coverage: w.Coverage}
	if w.Failed() {
		one.Failures = []Failure{{Seed: seed, At: w.Now(), Violation: w.Violations()[0]}}
	}
	s.Add(&one)
}

// Add adds what came of other lives.
func (s *Survey) Add(o *Survey) {
	s.Lives += o.Lives
	s.Failures = append(s.Failures, o.Failures...)
	s.Coverage.Add(&o.Coverage)
	a, b := reflect.ValueOf(&s.Counts).Elem(), reflect.ValueOf(o.Counts)
	for i := range a.NumField() {
		a.Field(i).SetInt(a.Field(i).Int() + b.Field(i).Int())
	}
}

// Print writes what there was.
func (s *Survey) Print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "%d lives, %d failed\n\n%v\n\n", s.Lives, len(s.Failures), s.Counts)
	s.Coverage.Print(w)
}

// String lists the counts by name.
func (c Counts) String() string {
	var words []string
	for v, i := reflect.ValueOf(c), 0; i < v.NumField(); i++ {
		words = append(words, fmt.Sprintf("%s %d", v.Type().Field(i).Name, v.Field(i).Int()))
	}
	return strings.Join(words, ", ")
}

// Zero names what never happened: the lives say nothing about it.
func (c Counts) Zero() []string {
	var out []string
	for v, i := reflect.ValueOf(c), 0; i < v.NumField(); i++ {
		if v.Field(i).Int() == 0 {
			out = append(out, v.Type().Field(i).Name)
		}
	}
	return out
}
