// Package queuetest makes random calls of work queues in simulated time, and says what came of them, so that a queue
// can be held against the one in whose place it stands.
package queuetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Items is how many items there are. Few of them meet more often.
const Items = 3

// Step is a call of a work queue, or a worker that takes an item. Priority and Both are for priority queues alone.
type Step struct {
	Do       string
	Item     int
	For      time.Duration
	Priority int
	Both     bool // limited by rate, too
}

func (s Step) String() string {
	return fmt.Sprintf("%s %d %v, priority %d %t", s.Do, s.Item, s.For, s.Priority, s.Both)
}

// Steps are all calls. None of them has a condition: items are done that nobody took, and added after a shutdown.
var Steps = rapid.Custom(func(t *rapid.T) Step {
	return Step{
		Do: rapid.SampledFrom([]string{"Add", "Add", "AddAfter", "AddRateLimited", "AddWithOpts", "AddWithOpts", "Forget",
			"Done", "Get", "succeed", "fail", "again", "pass", "pass", "ShutDown", "ShutDownWithDrain"}).Draw(t, "do"),
		Item: rapid.IntRange(1, Items).Draw(t, "item"),
		For: rapid.SampledFrom([]time.Duration{
			-time.Second, 0, time.Millisecond, time.Second, time.Minute,
		}).Draw(t, "for"),
		Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
		Both:     rapid.Bool().Draw(t, "both"),
	}
})

// Player makes steps on a queue, and writes down what they come to.
type Player[T comparable] struct {
	// Queue may be a priorityqueue.PriorityQueue.
	Queue workqueue.TypedRateLimitingInterface[T]
	// Item returns an item by its number.
	Item func(n int) T
	// Admit wraps what workers do; nil: as it is.
	Admit func(func(context.Context, T) error) func(context.Context, T) error

	draining bool

	mu    sync.Mutex
	lines []line
}

// line is what was written down, and when.
type line struct {
	at   time.Time
	text string
}

func (p *Player[T]) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line{time.Now(), fmt.Sprintf(format, args...)})
}

// told returns the lines in the order of time. Which of several goroutines hears first of a thing, such as of a
// shutdown, is chance.
func (p *Player[T]) told() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(p.lines, func(a, b line) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.text, b.text))
	})
	for _, l := range p.lines {
		out = append(out, l.text)
	}
	return out
}

func (p *Player[T]) priorities() priorityqueue.PriorityQueue[T] {
	q, _ := p.Queue.(priorityqueue.PriorityQueue[T])
	return q
}

// get takes an item, with its priority.
func (p *Player[T]) get() (item T, priority int, shutdown bool) {
	if q := p.priorities(); q != nil {
		item, priority, shutdown = q.GetWithPriority()
	} else {
		item, shutdown = p.Queue.Get()
	}
	p.note("got %v, priority %d, %t", item, priority, shutdown)
	return item, priority, shutdown
}

// work takes an item, syncs it for a while, and adds it again as a worker of client-go or controller-runtime does.
func (p *Player[T]) work(s Step) {
	item, priority, shutdown := p.get()
	if shutdown {
		return
	}
	sync := func(_ context.Context, item T) error {
		p.note("sync of %v", item)
		time.Sleep(max(0, s.For))
		if s.Do == "fail" {
			return errors.New("as told")
		}
		return nil
	}
	if p.Admit != nil {
		sync = p.Admit(sync)
	}
	err := sync(context.Background(), item)
	switch {
	case err != nil:
		p.add(priorityqueue.AddOpts{RateLimited: true, Priority: &priority}, item)
	case s.Do == "again":
		p.Queue.Forget(item)
		p.add(priorityqueue.AddOpts{After: s.For, Priority: &priority}, item)
	default:
		p.Queue.Forget(item)
	}
	p.Queue.Done(item)
}

// add adds an item. A queue without priorities does what is nearest.
func (p *Player[T]) add(o priorityqueue.AddOpts, item T) {
	q := p.priorities()
	switch {
	case q != nil:
		q.AddWithOpts(o, item)
	case o.RateLimited:
		p.Queue.AddRateLimited(item)
	case o.After != 0:
		p.Queue.AddAfter(item, o.After)
	default:
		p.Queue.Add(item)
	}
}

func (p *Player[T]) step(s Step) {
	defer func() {
		if cause := recover(); cause != nil {
			p.note("panic: %v", cause)
		}
	}()
	item := p.Item(s.Item)
	switch s.Do {
	case "Add":
		p.Queue.Add(item)
	case "AddAfter":
		p.Queue.AddAfter(item, s.For)
	case "AddRateLimited":
		p.Queue.AddRateLimited(item)
	case "AddWithOpts":
		p.add(priorityqueue.AddOpts{After: s.For, RateLimited: s.Both, Priority: &s.Priority}, item)
	case "Forget":
		p.Queue.Forget(item)
	case "Done":
		p.Queue.Done(item)
	case "Get":
		go p.get()
	case "succeed", "fail", "again":
		go p.work(s)
	case "pass":
		time.Sleep(max(0, s.For))
	case "ShutDown":
		p.Queue.ShutDown()
	case "ShutDownWithDrain":
		p.drain()
	}
}

func (p *Player[T]) drain() {
	if p.priorities() != nil { // it does not wait
		p.Queue.ShutDownWithDrain()
		return
	}
	if p.draining { // which of two hears of the end is chance
		return
	}
	p.draining = true
	go func() {
		p.Queue.ShutDownWithDrain()
		p.note("drained")
	}()
}

// play makes steps, one after the other, and notes after each one what the queue has.
func (p *Player[T]) play(steps []Step) {
	for n, s := range steps {
		time.Sleep(time.Duration(n+1) * time.Nanosecond) // so that no two things happen at the same time
		if s.For > 0 {
			s.For += time.Duration(n * n)
		}
		p.step(s)
		synctest.Wait()
		var failures []int
		for n := range Items {
			failures = append(failures, p.Queue.NumRequeues(p.Item(n+1)))
		}
		p.note("after %v: length %d, failures %v, shutting down %t", s, p.Queue.Len(), failures, p.Queue.ShuttingDown())
	}
	if !p.Queue.ShuttingDown() {
		p.Queue.ShutDown()
	}
	time.Sleep(time.Hour)  // workers end
	for n := range Items { // that somebody has got
		p.Queue.Done(p.Item(n + 1))
	}
	synctest.Wait() // for who waits for a drain
}

// played returns what steps come to in a queue, in simulated time.
func played[T comparable](t *testing.T, steps []Step, playerOf func(*testing.T) *Player[T]) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		p := playerOf(t)
		p.play(steps)
		lines = p.told()
	})
	return lines
}

// Compare makes the same random calls of a stock queue and of another one. What comes of them is the same.
func Compare[T comparable](t *testing.T, stock, member func(*testing.T) *Player[T]) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(Steps, 1, 40).Draw(rt, "steps")
		want, got := played(t, steps, stock), played(t, steps, member)
		for n := range max(len(want), len(got)) {
			if n >= len(want) || n >= len(got) || want[n] != got[n] {
				rt.Fatalf("stock:\n  %s\nmember:\n  %s", strings.Join(want[:min(n+1, len(want))], "\n  "),
					strings.Join(got[:min(n+1, len(got))], "\n  "))
			}
		}
	})
}
