package labeller

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/slot"
)

const (
	// lastRelist is the longest time until objects that could not be patched are listed again.
	lastRelist = 5 * time.Minute
	// lanes is how many batches from the watch are in flight at a time, so that an object does not wait for another's slow
	// patch. An object always uses the same lane, so the later of two values is written last.
	lanes = 4
)

// follower labels the objects of a scope whose label is missing or malformed.
type follower struct {
	t     *tenure
	scope scope
	// found holds objects on their way from the watch to the patches, by lane. The rest waits in the API server.
	found [lanes]chan target
	// begun is true once the first list has begun, and short if the long selector is rejected.
	begun, short bool
	absent       bool // the API server did not know the kind last time
	// incomplete receives a value when an object was given up for now.
	incomplete chan struct{}
	relists    int // consecutive relists for objects given up
	// listed is called when a list has ended, with or without an error, and at the end.
	listed func()
}

// follow works on a scope until ctx ends, in rounds.
func (t *tenure) follow(ctx context.Context, s scope) {
	f := &follower{t: t, scope: s, listed: sync.OnceFunc(t.listing.Done)}
	defer f.listed()
	for failures := 0; ctx.Err() == nil; {
		begun := time.Now()
		err := f.round(ctx)
		expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		// A kind that is not served may be served at any time. Report that only once.
		absent := apierrors.IsNotFound(err)
		if err != nil && ctx.Err() == nil && !expired && !(absent && f.absent) {
			t.l.opts.Report(err)
		}
		if absent && !f.absent && ctx.Err() == nil {
			t.l.opts.NotServed(s.resource)
		}
		f.absent = absent
		f.short = f.short || tooLong(err)
		if time.Since(begun) > lastBackoff {
			failures = 0
		}
		failures++
		sleep(ctx, backoff(failures, lastBackoff))
	}
}

// round is a list and the watch after it. It ends when the list has to begin again: because the watch lost its place,
// which is the error, or because objects that were given up are due.
func (f *follower) round(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	f.incomplete = make(chan struct{}, 1)
	for i := range f.found {
		f.found[i] = make(chan target, 2*batchSize)
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer end()
	selector := f.selector()
	listed, lost := make(chan error, 1), make(chan error, 1)
	work.Go(func() {
		following := false
		listed <- f.t.l.pages(ctx, f.scope, selector, func(page *metav1.PartialObjectMetadataList) bool {
			if !following {
				following, f.begun = true, true
				// Beside the list, not after it: a backlog takes minutes, and the server keeps versions for five.
				for _, lane := range f.found {
					work.Go(func() { f.label(ctx, lane) })
				}
				work.Go(func() { lost <- f.stream(ctx, page.ResourceVersion) })
			}
			f.patch(ctx, f.t.l.targets(f.scope, page))
			return ctx.Err() == nil
		})
	})
	relist := time.NewTimer(lastRelist)
	relist.Stop()
	defer relist.Stop()
	due := false
	for {
		select {
		case err := <-listed:
			f.listed()
			if err != nil {
				return err
			}
			listed = nil
			if len(f.incomplete) == 0 && !due {
				f.relists = 0
			}
		case err := <-lost:
			return err
		case <-f.incomplete:
			if !due {
				due = true
				f.relists++
				relist.Reset(backoff(f.relists+3, lastRelist))
			}
		case <-relist.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// selector returns the selector for a list. The first list leaves malformed values to the following scan. Later lists
// have to find those that the watch missed.
func (f *follower) selector() string {
	scans := f.t.l.opts.ScanPeriod > 0
	if f.short || scans && !f.begun {
		return f.t.l.missing()
	}
	return f.t.l.malformed()
}

func (f *follower) patch(ctx context.Context, targets []target) {
	if !f.t.l.patchAll(ctx, targets, f.t.enter) {
		select {
		case f.incomplete <- struct{}{}:
		default:
		}
	}
}

// hand passes on what the watch found. It returns false if ctx ended.
func (f *follower) hand(ctx context.Context, t target) bool {
	select {
	case f.found[slot.HashName(t.namespace, t.name)%lanes] <- t:
		return true
	case <-ctx.Done():
		return false
	}
}

// label patches what the watch found in a lane. Objects that arrive while a batch is in flight form the next batch.
func (f *follower) label(ctx context.Context, found <-chan target) {
	for {
		var batch []target
		select {
		case <-ctx.Done():
			return
		case t := <-found:
			batch = append(batch, t)
		}
		seen := map[target]int{batch[0].object(): 0}
		for more := true; more && len(batch) < batchSize; {
			select {
			case t := <-found:
				if n, twice := seen[t.object()]; twice {
					batch[n] = t // the newer value
				} else {
					seen[t.object()] = len(batch)
					batch = append(batch, t)
				}
			default:
				more = false
			}
		}
		f.patch(ctx, batch)
	}
}
