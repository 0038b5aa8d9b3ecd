package workers

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

const (
	// backlogPeriod is how often a dispatcher compares its backlogs with other dispatchers' backlogs, while workers ask
	// it for keys.
	backlogPeriod = time.Second
	// behind is how much longer a key must have waited at another dispatcher for an ask to go there first. Smaller
	// differences are not worth the extra request. From farBehind more on, all asks that may go there do.
	behind, farBehind = 500 * time.Millisecond, 2 * time.Second
	// oneInAll: one in so many asks goes by all keys instead of the keys of changed objects. So keys of newly opened slots
	// are not starved.
	oneInAll = 8
)

// backlog is how long the oldest ready key has waited, for changed objects and for all.
type backlog struct{ changed, all time.Duration }

// backlogs are one dispatcher's backlogs by kind.
type backlogs map[string]backlog

func (b backlogs) of(kinds []string) (out backlog) {
	for _, kind := range kinds {
		out.changed, out.all = max(out.changed, b[kind].changed), max(out.all, b[kind].all)
	}
	return out
}

// backlogsOf returns the backlogs in one dispatcher's figures.
func backlogsOf(kinds []wire.KindStats) backlogs {
	out := backlogs{}
	for _, k := range kinds {
		out[k.Kind] = backlog{
			changed: time.Duration(k.OldestChangedSeconds * float64(time.Second)),
			all:     time.Duration(k.OldestSeconds * float64(time.Second)),
		}
	}
	return out
}

// theirs are the backlogs of another dispatcher.
type theirs struct {
	of       Process
	backlogs backlogs
}

// shares decides which dispatcher an ask goes to first, so that keys wait about equally long at all dispatchers of a
// tier, whichever of them the workers ask. Otherwise workers that always find a key at one dispatcher would ignore the
// others' keys.
//
// An ask goes elsewhere with a probability that rises with the lead of the oldest key there. If dispatchers with the
// same figures all went to the same one at once, that one would soon be ahead of the others.
type shares struct {
	own    backlogs
	others []theirs
}

// first returns the dispatcher that an ask for some kinds goes to first, or false for this one. draw is a random number
// from 0 to 1, and turn counts asks.
func (s shares) first(kinds []string, draw float64, turn uint64) (Process, bool) {
	own := s.own.of(kinds)
	other := make([]backlog, len(s.others))
	changed := own.changed > 0
	for i, o := range s.others {
		other[i] = o.backlogs.of(kinds)
		changed = changed || other[i].changed > 0
	}
	age := func(b backlog) time.Duration {
		if changed && turn%oneInAll != 0 {
			return b.changed
		}
		return b.all
	}
	leads, most, sum := make([]float64, len(other)), 0.0, 0.0
	for i := range other {
		lead := float64(age(other[i])-age(own)-behind) / float64(farBehind)
		leads[i] = min(max(lead, 0), 1)
		most, sum = max(most, leads[i]), sum+leads[i]
	}
	if draw >= most {
		return Process{}, false
	}
	at := draw / most * sum
	for i, lead := range leads {
		if at -= lead; at < 0 {
			return s.others[i].of, true
		}
	}
	return Process{}, false
}

// without returns the shares without a dispatcher that had no key.
func (s shares) without(id Process) shares {
	s.others = slices.DeleteFunc(slices.Clone(s.others), func(o theirs) bool { return o.of == id })
	return s
}

// sharing is the current state of shares in a Front.
type sharing struct {
	mu    sync.Mutex
	known shares
	turn  uint64
}

// ask returns where an ask goes first. See shares.first.
func (s *sharing) ask(kinds []string) (Process, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	return s.known.first(kinds, rand.Float64(), s.turn) // the randomness is for fairness
}

// hadNone records that another dispatcher had no key. It is asked first again once new figures suggest it.
func (s *sharing) hadNone(id Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = s.known.without(id)
}

func (s *sharing) set(known shares) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
}

// asked returns how often ask was called.
func (s *sharing) asked() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}

// watchBacklogs reads the backlogs of all dispatchers as long as workers ask this one, until ctx ends.
func (f *Front) watchBacklogs(ctx context.Context) {
	seen := uint64(0)
	for await.Sleep(ctx, backlogPeriod) == nil {
		asked := f.sharing.asked()
		if asked == seen {
			f.sharing.set(shares{}) // outdated figures mislead
			continue
		}
		seen = asked
		f.sharing.set(f.readBacklogs(ctx))
	}
}

// readBacklogs asks all dispatchers, and leaves out those that do not answer.
func (f *Front) readBacklogs(ctx context.Context) shares {
	out := shares{own: backlogsOf(f.figures())}
	everywhere(ctx, f, f.o.Self, wire.PathStats, func(p Process, stats wire.Stats) {
		out.others = append(out.others, theirs{p, backlogsOf(stats.Kinds)})
	})
	slices.SortFunc(out.others, func(a, b theirs) int { return bytes.Compare(a.of[:], b.of[:]) })
	return out
}
