package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// shadowText is the reason in a shadow's report why the shadow does not work.
const shadowText = "this member is a shadow, which works on nothing"

// shadowSpread is the longest delay before the first list of a member.
const shadowSpread = 10 * time.Second

// Expectation counts the existing objects by kind and slot; it does not store objects. It is the Account of a member
// that works on nothing.
type Expectation struct {
	env    ExpectationEnv
	roles  *sharding.Roles
	random *rand.Rand

	mu   sync.Mutex
	seen map[schema.GroupKind]counted
}

// ExpectationEnv is the environment of an Expectation.
type ExpectationEnv struct {
	// Config provides the slots, the key, the seed that spreads requests, and the rota's durations.
	Config member.Config
	Kinds  []schema.GroupKind
	From   Objects
	// Period is the time between two lists of a kind. If 0, it is chosen so that lists take 1/1000 of the time.
	Period time.Duration
	Log    logr.Logger
	Now    func() time.Duration // monotonic
	Table  func() *table.Table
}

// Objects lists the metadata of a kind, one object after the other.
type Objects interface {
	// List returns the resourceVersion of the list.
	List(ctx context.Context, kind schema.GroupKind, each func(metav1.Object)) (version string, err error)
}

// counted is the last list of a kind.
type counted struct {
	digests map[slot.Slot]sharding.Digest
	// changed counts the objects that changed since the list before, which was ago earlier, and bare those without the
	// label SlotLabel. over is 0 for the first list.
	changed, bare map[slot.Slot]int
	over          time.Duration
	at            time.Duration
	version       string
}

var _ Account = (*Expectation)(nil)

// NewExpectation returns an Expectation that has counted no objects.
func NewExpectation(env ExpectationEnv) (*Expectation, error) {
	e := &Expectation{env: env, seen: map[schema.GroupKind]counted{}, random: rand.New(rand.NewPCG(env.Config.Seed, 0)),
		roles: sharding.New(sharding.Options{Slots: env.Config.Slots, Key: env.Config.Key, Label: true})}
	for _, kind := range env.Kinds {
		if err := e.roles.Shard(kind); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Run lists the kinds repeatedly until the incarnation ends. The first lists come after a random delay, since all
// replicas may start at once.
func (e *Expectation) Run(m Member) {
	_ = await.Sleep(m.Context(), time.Duration(e.random.Float64()*float64(e.spread())))
	reported, due := map[schema.GroupKind]string{}, map[schema.GroupKind]time.Duration{}
	for m.Context().Err() == nil {
		for _, kind := range e.env.Kinds {
			begun := e.env.Now()
			if begun < due[kind] {
				continue
			}
			err := e.count(m.Context(), kind)
			due[kind] = e.env.Now() + e.period(e.env.Now()-begun, err)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if m.Context().Err() == nil && text != "" && text != reported[kind] {
				e.env.Log.Error(err, "The shadow cannot list the objects; trying again", append(StackOf(err),
					"kind", kind.String(), "after", (due[kind]-e.env.Now()).String())...)
			}
			reported[kind] = text
		}
		next := slices.Min(slices.Collect(maps.Values(due)))
		_ = await.Sleep(m.Context(), next-e.env.Now())
	}
}

// spread returns the longest delay before the first lists.
func (e *Expectation) spread() time.Duration {
	return min(shadowSpread, cmp.Or(e.env.Period, shadowSpread))
}

// period returns the time from the end of a list of a kind to the next one. All kinds together take at most
// 1/scrubShare of the time. A kind that could not be listed is tried again after scrubLatest or sooner.
func (e *Expectation) period(took time.Duration, err error) time.Duration {
	if set := e.env.Period; set > 0 {
		return set
	}
	out := max(scrubShare*time.Duration(len(e.env.Kinds))*took, lookPeriod(e.env.Config.LeaseDuration))
	if err != nil {
		out = min(out, scrubLatest)
	}
	return out
}

// count lists a kind and counts its objects.
func (e *Expectation) count(ctx context.Context, kind schema.GroupKind) (err error) {
	defer Caught(&err)
	e.mu.Lock()
	before, again := e.seen[kind]
	e.mu.Unlock()
	now := counted{digests: map[slot.Slot]sharding.Digest{}, changed: map[slot.Slot]int{}, bare: map[slot.Slot]int{},
		at: e.env.Now()}
	version, err := e.env.From.List(ctx, kind, func(obj metav1.Object) {
		s, ok := e.roles.SlotOf(kind, obj)
		if !ok {
			return
		}
		now.digests[s] = now.digests[s].With(sharding.DigestHash(e.env.Config.Key, obj))
		if again && resourceversion.Compare(obj.GetResourceVersion(), before.version) > 0 {
			now.changed[s]++
		}
		for label, value := range e.roles.Stamps(kind, obj) {
			if obj.GetLabels()[label] != value {
				now.bare[s]++
			}
		}
	})
	if err != nil {
		return err
	}
	if now.version = version; again {
		now.over = now.at - before.at
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[kind] = now
	return nil
}

// Duties implements Account. There are none.
func (*Expectation) Duties() []string { return nil }

// Report returns what this member would hold now, according to the last lists.
func (e *Expectation) Report(id string, setup map[string]string) *coverage.Report {
	out := &coverage.Report{Member: id, Digests: coverage.Digests{}, Setup: setup, Waits: shadowText,
		Owners: map[schema.GroupKind]map[schema.GroupKind]bool{}, Waiting: map[slot.Slot]time.Duration{}}
	mine := e.env.Table().Owned(out.Member)
	e.mu.Lock()
	defer e.mu.Unlock()
	for kind, c := range e.seen {
		would := coverage.Would{Kind: kind, Over: c.over}
		digests := maps.Clone(c.digests)
		maps.DeleteFunc(digests, func(s slot.Slot, _ sharding.Digest) bool { return !mine.Has(s) })
		for s := range digests {
			would.Objects += digests[s].Objects
			would.Changed += c.changed[s]
			would.Unlabelled += c.bare[s]
		}
		out.Digests[kind] = digests
		out.Would = append(out.Would, would)
	}
	slices.SortFunc(out.Would, coverage.Would.Compare)
	return out
}

// crash is a panic of a shadow.
type crash struct {
	value any
	stack string
}

func (c *crash) Error() string { return fmt.Sprintf("panic: %v", c.value) }

// Caught recovers from a panic and stores it as an error. Defer it.
func Caught(err *error) {
	if value := recover(); value != nil {
		*err = &crash{value, string(debug.Stack())}
	}
}

// StackOf returns the stack as keys and values for the log, if err is a panic.
func StackOf(err error) []any {
	var c *crash
	if !errors.As(err, &c) {
		return nil
	}
	return []any{"stack", c.stack}
}
