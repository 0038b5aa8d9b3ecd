package labeller

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Refusal describes the objects of a kind whose labels the API server refuses, for example because of a policy.
// Selecting by the label does not find these objects.
type Refusal struct {
	Kind schema.GroupKind
	// Since is when the first was refused, Objects how many there are, up to 1,000, and Slots where they are.
	Since   time.Time
	Objects int
	Slots   slot.Set
	// Err is the error for the first object and contains its name.
	Err error
}

const (
	// maxRefusals is how many refused objects a labeller remembers.
	maxRefusals = 1000
	// refusedFor is how long patches of an object must have been refused. Restarts of a webhook and conflicts take less.
	refusedFor = 5 * time.Second
	// refusalTTL is how long a refusal counts, which is longer than the time between scans.
	refusalTTL = 25 * time.Minute
)

// refusals holds the objects whose patches were refused, until a patch succeeds or the object is gone.
type refusals struct {
	mu sync.Mutex
	of map[target]refusal // by target.object
}

type refusal struct {
	value       string
	since, last time.Time
	err         error
}

func (r *refusals) note(t target, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, known := r.of[t.object()]
	switch {
	case known:
	case len(r.of) >= maxRefusals:
		return
	case r.of == nil:
		r.of = map[target]refusal{}
	}
	if !known {
		is.since = now
	}
	is.value, is.last, is.err = t.value, now, err
	r.of[t.object()] = is
}

func (r *refusals) forget(t target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, t.object())
}

func (r *refusals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of = nil
}

// lasting summarizes the objects that have been refused for long.
func (r *refusals) lasting(slots slot.Count, now time.Time) (sum Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(_ target, is refusal) bool { return now.Sub(is.last) > refusalTTL })
	var first target
	for t, is := range r.of {
		if is.last.Sub(is.since) < refusedFor {
			continue
		}
		sum.Objects++
		if value, err := strconv.Atoi(is.value); err == nil {
			sum.Slots.Add(slot.Slot(value * int(slots) / slot.MaxCount))
		}
		if earlier := is.since.Compare(sum.Since); sum.Objects == 1 || earlier < 0 ||
			earlier == 0 && t.String() < first.String() {
			first, sum.Since, sum.Err = t, is.since, is.err
		}
	}
	return sum
}

// Refused returns the kinds with objects that this process cannot label. A kind with two labels may be listed twice.
func (l *Kinds) Refused() (out []Refusal) {
	for _, k := range l.all() {
		s := k.served()
		if s == nil {
			continue
		}
		if sum := s.refusals.lasting(l.env.Share.SlotCount(), time.Now()); sum.Objects > 0 {
			sum.Kind = k.kind
			out = append(out, sum)
		}
	}
	return out
}
