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
	// lookAtBacklogs is how often dispatchers that are asked for keys look how long those of the others have waited.
	lookAtBacklogs = time.Second
	// behind is by how much longer a key must have waited elsewhere for an ask to go there first: less is not worth the
	// way. farBehind more, and all asks do that may.
	behind, farBehind = 500 * time.Millisecond, 2 * time.Second
	// oneInAll is how many asks go by the oldest keys of objects that changed, for one that goes by all keys. So those of
	// slots that were just opened come, too.
	oneInAll = 8
)

// backlog is for how long the oldest key that is ready has waited: of objects that changed, and of all.
type backlog struct{ changed, all time.Duration }

// backlogs are those of each kind, at one dispatcher.
type backlogs map[string]backlog

func (b backlogs) of(kinds []string) (out backlog) {
	for _, kind := range kinds {
		out.changed, out.all = max(out.changed, b[kind].changed), max(out.all, b[kind].all)
	}
	return out
}

// backlogsOf reads the figures of one dispatcher.
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

// shares decides where an ask goes first, so that keys wait about as long at all dispatchers of a tier, whichever of
// them workers ask. Without it, workers that always find a key at one dispatcher would leave those of the others.
//
// An ask goes elsewhere with a probability that rises with the lead of the oldest key there, and not at once: if
// dispatchers that see the same figures all went to the same one, that one would be ahead of the others soon after.
type shares struct {
	own    backlogs
	others []theirs
}

// first returns the dispatcher that an ask for keys of some kinds goes to first; false: this one. draw is a random
// number from 0 to 1, and turn counts asks.
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

// without returns the shares without another dispatcher, which had no key.
func (s shares) without(id Process) shares {
	s.others = slices.DeleteFunc(slices.Clone(s.others), func(o theirs) bool { return o.of == id })
	return s
}

// sharing is what a Front knows of how long keys wait.
type sharing struct {
	mu    sync.Mutex
	known shares
	turn  uint64
}

// ask returns where an ask goes first; see shares.first.
func (s *sharing) ask(kinds []string) (Process, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	return s.known.first(kinds, rand.Float64(), s.turn) // for fairness
}

// hadNone notes that another dispatcher had no key. It is asked first again when the figures say so.
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

// lookAtBacklogs reads the backlogs of all dispatchers, for as long as workers ask this one, until ctx ends.
func (f *Front) lookAtBacklogs(ctx context.Context) {
	seen := uint64(0)
	for await.Sleep(ctx, lookAtBacklogs) == nil {
		asked := f.sharing.asked()
		if asked == seen {
			f.sharing.set(shares{}) // an old one misleads
			continue
		}
		seen = asked
		f.sharing.set(f.readBacklogs(ctx))
	}
}

// readBacklogs asks all dispatchers. Those that do not answer are left out.
func (f *Front) readBacklogs(ctx context.Context) shares {
	out := shares{own: backlogsOf(f.figures())}
	everywhere(ctx, f, f.o.Self, wire.PathStats, func(p Process, stats wire.Stats) {
		out.others = append(out.others, theirs{p, backlogsOf(stats.Kinds)})
	})
	slices.SortFunc(out.others, func(a, b theirs) int { return bytes.Compare(a.of[:], b.of[:]) })
	return out
}
