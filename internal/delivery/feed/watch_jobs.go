package feed

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
		if !s.lacks(name, was.Slot, listed) {
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
func (s *Source) do(ctx context.Context, t stream.Task, run func(*pump) bool) {
	j := job{done: make(chan bool, 1), run: func(p *pump) bool {
		return !s.isFor(p, t) || run(p)
	}}
	select {
	case s.jobs <- j:
		<-j.done
	case <-ctx.Done():
	}
}

// barrier returns when the store holds everything that was sent before the call, and returns the barrier's number. From
// the barrier on, handlers believe events of the fresh slots. It may be called concurrently. The error is ErrStopped or
// ctx's cause.
func (s *Source) barrier(ctx context.Context, fresh slot.Set) (uint64, error) {
	var b barrier
	j := job{done: make(chan bool, 1), run: func(p *pump) bool {
		b = p.raise(fresh)
		return b.sent
	}}
	select {
	case s.jobs <- j:
	case <-s.done:
		return 0, ErrStopped
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	<-j.done
	if !s.inf.await(b, s.done) {
		return 0, ErrStopped
	}
	return b.serial, nil
}

// flush waits until the store holds everything that was sent. Nothing is sent meanwhile.
func (p *pump) flush() bool { return p.source.inf.await(p.raise(slot.Set{}), p.source.done) }

func (p *pump) raise(fresh slot.Set) barrier {
	i := p.source.inf
	return i.raise(fresh, func(serial uint64) bool {
		return p.send(watch.Event{Type: watch.Deleted, Object: i.mark.barrier(serial, p.source.at())})
	})
}
