package delivery_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
)

// The slots, objects, owners and handlers of the sequences. Few of each meet more often.
const (
	informerSlots    = slot.Count(4)
	informerObjects  = 5
	informerOwners   = 5
	informerHandlers = 3
)

// settles is the time after each step in which everything comes to rest that the step began, and faultSettles that
// after a fault, which the reflector of client-go answers with long waits.
const (
	settles      = time.Second
	faultSettles = 5 * time.Minute
	resyncs      = time.Minute
)

// informerSetting is what does not change in a sequence.
type informerSetting struct {
	Mode           sharding.Mode
	WatchList      bool
	Resync         time.Duration
	Transform      bool
	Owned, Orphans bool
}

// informerStep is a call of an informer or of its share, or what happens to the objects, or to the connection.
type informerStep struct {
	Do        string
	N, M      int // which object, handler or owner
	Set       []int
	For       time.Duration
	Meanwhile []informerStep // changes that the watches do not show yet
}

func (s informerStep) String() string {
	text := fmt.Sprintf("%s n=%d m=%d slots=%v %v", s.Do, s.N, s.M, s.Set, s.For)
	for _, m := range s.Meanwhile {
		text += fmt.Sprintf(" [%s n=%d m=%d]", m.Do, m.N, m.M)
	}
	return text
}

func (s informerStep) slots() slot.Set {
	var set slot.Set
	for _, n := range s.Set {
		set.Add(slot.Slot(n)) // below informerSlots
	}
	return set
}

var informerSettings = rapid.Custom(func(t *rapid.T) informerSetting {
	s := informerSetting{
		Mode:      rapid.SampledFrom([]sharding.Mode{sharding.Filter, sharding.SlotLabel}).Draw(t, "mode"),
		WatchList: rapid.Bool().Draw(t, "watchList"),
		Resync:    rapid.SampledFrom([]time.Duration{deliverytest.Never, resyncs}).Draw(t, "resync"),
		Transform: rapid.Bool().Draw(t, "transform"),
		Owned:     rapid.Bool().Draw(t, "owned"),
	}
	s.Orphans = s.Owned && rapid.Bool().Draw(t, "orphans")
	return s
})

var objectSteps = []string{"create", "create", "update", "update", "delete", "adopt", "delete and create"}

func drawObjectStep(t *rapid.T, do string) informerStep {
	return informerStep{
		Do: do, N: rapid.IntRange(0, informerObjects-1).Draw(t, "n"), M: rapid.IntRange(0, informerOwners-1).Draw(t, "m"),
	}
}

// informerSteps are all calls. None of them has a condition: an informer is started twice, handlers are removed that
// were not added, slots are opened that are not held.
var informerSteps = rapid.Custom(func(t *rapid.T) informerStep {
	do := rapid.SampledFrom(append([]string{
		"start", "start", "start", "warm", "warm", "warm", "open", "open", "open", "shut", "release", "release", "own", "own",
		"add handler", "add handler", "add handler", "remove handler", "add indexer", "set transform", "set error handler",
		"pass", "cut", "expire", "lag", "outage", "refuse", "stop",
	}, slices.Repeat(objectSteps, 3)...)).Draw(t, "do")
	s := drawObjectStep(t, do)
	s.Set = rapid.SliceOfNDistinct(rapid.IntRange(0, int(informerSlots)-1), 0, int(informerSlots), rapid.ID[int]).
		Draw(t, "slots")
	s.For = rapid.SampledFrom([]time.Duration{0, resyncs, 2 * resyncs}).Draw(t, "for")
	if do == "lag" || do == "outage" || do == "refuse" {
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			s.Meanwhile = append(s.Meanwhile, drawObjectStep(t, rapid.SampledFrom(objectSteps).Draw(t, "change")))
		}
	}
	return s
})
