package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	// What must not stay undone is a deletion, and the creation after it. It is tried again after retryPeriod, which
	// doubles up to longestPeriod, and for patience. The API server comes back, and a finalizer goes.
	retryPeriod, longestPeriod, patience = 100 * time.Millisecond, 2 * time.Second, 2 * time.Minute
	// pickTries is how many Websites Pick looks at.
	pickTries = 200
)

// Load changes Websites, and records what it did. Their number stays the same after Fill.
type Load struct {
	client    client.Client
	namespace string
	spec      func(*Site) webv1.WebsiteSpec
	work      sync.WaitGroup

	mu        sync.Mutex
	random    *rand.Rand
	sites     []*Site
	next      int
	updates   []judge.Update
	deletions []judge.Deletion
	counts    Counts
}

// Counts are how often a load did something. Err is the last failure.
type Counts struct {
	Updates, Recreations, Replacements, Failures int
	Err                                          error
}

// Site is a Website of a load. Only the one that changes it, which made it busy, may read more than its key and UID.
type Site struct {
	judge.Site
	// Number is its own, from 0. Edition counts its specifications.
	Number, Edition int
	busy            bool
}

// NewLoad returns a load on the Websites of a namespace. spec returns the specification for a Website's edition.
func NewLoad(c client.Client, namespace string, seed uint64, spec func(*Site) webv1.WebsiteSpec) *Load {
	return &Load{client: c, namespace: namespace, spec: spec, random: rand.New(rand.NewPCG(seed, 0))}
}

func (l *Load) newSite() *Site {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Site{Number: l.next}
	s.Namespace, s.Name = l.namespace, fmt.Sprintf("site-%05d", l.next)
	l.next++
	return s
}

// Fill creates n Websites.
func (l *Load) Fill(ctx context.Context, n int) error {
	return Parallel(ctx, 0, n, func(int) error {
		s := l.newSite()
		if err := l.create(ctx, s); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sites = append(l.sites, s)
		return nil
	})
}

// Start does something in the background to the Website that choose returns, unless that is nil or busy.
func (l *Load) Start(
	ctx context.Context, choose func(*rand.Rand, []*Site) *Site, do func(context.Context, *Site) error,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := choose(l.random, l.sites)
	if s == nil || s.busy {
		return
	}
	s.busy = true
	l.Go(func() error {
		err := do(ctx, s)
		l.mu.Lock()
		defer l.mu.Unlock()
		s.busy = false
		return err
	})
}

// Go does something in the background, and records whether it failed.
func (l *Load) Go(do func() error) {
	l.work.Go(func() { l.failed(do()) })
}

func (l *Load) failed(err error) {
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.counts.Failures++
		l.counts.Err = err
	}
}

// Tick calls do in the background until ctx ends, at intervals. Calls that are late follow at once, but for those that
// are late by more than a second: the machine cannot keep up.
func (l *Load) Tick(ctx context.Context, interval func() time.Duration, do func()) {
	l.work.Go(func() {
		next := time.Now()
		for await.Sleep(ctx, time.Until(next)) == nil {
			do()
			next = next.Add(interval())
			if behind := time.Now().Add(-time.Second); next.Before(behind) {
				next = behind
			}
		}
	})
}

// Run does rate things per second until ctx ends, and ends what it began in later. Half of them update the first
// Website. Of the others most are updates, some recreations and replacements.
func (l *Load) Run(ctx, later context.Context, rate float64) {
	l.Tick(ctx, func() time.Duration { return time.Duration(float64(time.Second) / rate) }, func() {
		do := l.Update
		l.Start(later, func(random *rand.Rand, sites []*Site) *Site {
			i := 0
			if random.IntN(2) == 0 {
				i = random.IntN(len(sites))
			}
			switch choice := random.IntN(10); {
			case i == 0 || choice < 6:
			case choice < 8:
				do = l.Recreate
			default:
				do = l.Replace
			}
			return sites[i]
		}, func(ctx context.Context, s *Site) error { return do(ctx, s) })
	})
}

// Wait returns when all that Start, Go and Tick began is done.
func (l *Load) Wait() { l.work.Wait() }

// Pick returns an idle Website that matches, at random, or nil if it does not find one.
func Pick(random *rand.Rand, sites []*Site, match func(*Site) bool) *Site {
	for range pickTries {
		if len(sites) == 0 {
			return nil
		}
		if s := sites[random.IntN(len(sites))]; !s.busy && match(s) {
			return s
		}
	}
	return nil
}

func (l *Load) create(ctx context.Context, s *Site) error {
	s.Edition++
	obj := &webv1.Website{ObjectMeta: s.meta(), Spec: l.spec(s)}
	err := l.client.Create(ctx, obj)
	if apierrors.IsAlreadyExists(err) { // the answer to an earlier request was lost, or it waits for its finalizer
		if err = l.client.Get(ctx, s.NamespacedName, obj); err == nil && obj.DeletionTimestamp != nil {
			err = errors.New("its predecessor is not gone")
		}
	}
	if err != nil {
		return fmt.Errorf("create website %s: %w", s, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.UID = string(obj.UID)
	l.updated(obj)
	return nil
}

// updated records a specification that the API server just accepted. The caller holds the lock.
func (l *Load) updated(obj *webv1.Website) {
	l.updates = append(l.updates, judge.Update{
		Key: client.ObjectKeyFromObject(obj), UID: string(obj.UID), Generation: obj.Generation, Commit: journal.Now(),
	})
}

// Update changes a Website's content.
func (l *Load) Update(ctx context.Context, s *Site) error {
	s.Edition++
	obj := &webv1.Website{ObjectMeta: s.meta()}
	patch := fmt.Appendf(nil, `{"spec":{"content":%q}}`, l.spec(s).Content)
	if err := l.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("update website %s: %w", s, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Updates++
	l.updated(obj)
	return nil
}

// Recreate deletes a Website, and creates it again under its name, whatever it takes.
func (l *Load) Recreate(ctx context.Context, s *Site) error {
	if err := l.remove(ctx, s); err != nil {
		return err
	}
	if err := l.insist(ctx, func() error { return l.create(ctx, s) }); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Recreations++
	return nil
}

// Replace deletes a Website for good, and creates another one instead, whatever it takes.
func (l *Load) Replace(ctx context.Context, s *Site) error {
	begun := journal.Now()
	if err := l.remove(ctx, s); err != nil {
		return err
	}
	next := l.newSite()
	l.mu.Lock()
	l.deletions = append(l.deletions, judge.Deletion{Site: s.Site, Begun: begun, Commit: journal.Now()})
	l.counts.Replacements++
	s.Site, s.Number, s.Edition = next.Site, next.Number, 0
	l.mu.Unlock()
	return l.insist(ctx, func() error { return l.create(ctx, s) })
}

func (l *Load) remove(ctx context.Context, s *Site) error {
	return l.insist(ctx, func() error {
		err := l.client.Delete(ctx, &webv1.Website{ObjectMeta: s.meta()})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete website %s: %w", s, err)
		}
		return nil
	})
}

// insist tries until it succeeds.
func (l *Load) insist(ctx context.Context, try func() error) error {
	begun := time.Now()
	for period := retryPeriod; ; period = min(2*period, longestPeriod) {
		err := try()
		if err == nil {
			return nil
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("given up after %v: %w", patience, err)
		}
		if err := await.Sleep(ctx, period); err != nil {
			return err
		}
	}
}

func (s *Site) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}
}

// Sites returns the Websites.
func (l *Load) Sites() []judge.Site {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]judge.Site, len(l.sites))
	for i, s := range l.sites {
		out[i] = s.Site
	}
	return out
}

// Counts returns what was done so far.
func (l *Load) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Deletions returns the deletions for good so far.
func (l *Load) Deletions() []judge.Deletion {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.deletions)
}

// Take returns the accepted specifications, those of new Websites included, and the deletions for good since the last
// call.
func (l *Load) Take() ([]judge.Update, []judge.Deletion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	updates, deletions := l.updates, l.deletions
	l.updates, l.deletions = nil, nil
	return updates, deletions
}

// parallelism is how many calls Parallel makes at a time.
const parallelism = 16

// Parallel calls do for the numbers from first to below end, some at a time. It returns the first error.
func Parallel(ctx context.Context, first, end int, do func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range parallelism {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := first; i < end && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
