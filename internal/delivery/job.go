package delivery

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// job is a function that runs on the pump's goroutine, to send events.
type job struct {
	run  func(*pump) bool
	done chan bool // true: all of it was sent
}

// remove sends marked deletions of objects: of slots that were lost (markLost), or of objects that a list at a version
// did not show (markMissing).
func (p *pump) remove(names map[stream.Name]stream.Place, mark, listed string) bool {
	s := p.source
	version := s.at()
	for name, was := range names {
		s.mu.Lock()
		there := s.core.Missing(name, was.Slot, listed)
		s.mu.Unlock()
		if !there {
			continue
		}
		uid := mark
		if mark == markMissing {
			uid += was.Slot.String()
		}
		obj := s.inf.mark.object(types.UID(uid), name.Namespace, name.Name, version)
		if mark == markMissing {
			s.inf.copyOwners(obj, name.String())
		}
		if !p.send(watch.Event{Type: watch.Deleted, Object: obj}) {
			return false
		}
	}
	return true
}

// do has the pump run a job, as soon as there is a pump. The job does not run if a list of everything overtakes it. If
// the pump ends halfway, such a list follows.
func (s *source) do(ctx context.Context, t stream.Task, run func(*pump) bool) {
	j := job{done: make(chan bool, 1), run: func(p *pump) bool {
		s.mu.Lock()
		valid := s.pump == p && s.core.Valid(t)
		s.mu.Unlock()
		return !valid || run(p)
	}}
	select {
	case s.jobs <- j:
		<-j.done
	case <-ctx.Done():
	}
}

// barrier returns when the store holds everything that was sent before the call, and returns the barrier's number. From
// the barrier on, handlers believe events of the fresh slots. It may be called concurrently. The error is errStopped or
// ctx's cause.
func (s *source) barrier(ctx context.Context, fresh slot.Set) (uint64, error) {
	var b barrier
	j := job{done: make(chan bool, 1), run: func(p *pump) bool {
		b = p.raise(fresh)
		return b.sent
	}}
	select {
	case s.jobs <- j:
	case <-s.done:
		return 0, errStopped
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	<-j.done
	if !s.await(b) {
		return 0, errStopped
	}
	return b.serial, nil
}

// flush waits until the store holds everything that was sent. Nothing is sent meanwhile.
func (p *pump) flush() bool { return p.source.await(p.raise(slot.Set{})) }

// barrier is a mark that was sent to the store.
type barrier struct {
	serial  uint64
	arrived chan struct{}
	sent    bool
}

// raise sends a barrier. await has to follow.
func (p *pump) raise(fresh slot.Set) barrier {
	i := p.source.inf
	i.joining.Lock()
	b := barrier{serial: i.marks.Add(1), arrived: make(chan struct{})}
	for _, n := range fresh.Slots() {
		i.arrived[n].Store(b.serial)
	}
	i.mu.Lock()
	i.waiting[b.serial] = b.arrived
	i.mu.Unlock()
	b.sent = p.send(watch.Event{Type: watch.Deleted, Object: i.mark.barrier(b.serial, p.source.at())})
	return b
}

// await waits until a barrier has arrived. It returns false if it does not.
func (s *source) await(b barrier) bool {
	i := s.inf
	defer i.joining.Unlock()
	if b.sent {
		// User code cannot block this: listeners have unbounded queues.
		select {
		case <-b.arrived:
			return true
		case <-s.done:
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiting, b.serial)
	return false
}
