package feed

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

const (
	// lookUps is how many objects are looked up at a time, per informer. For the API server each look-up is a read of one
	// object from its watch cache.
	lookUps = 16
	// lastRetry is the longest pause after a look-up that failed. A deletion may wait that long.
	lastRetry = 2 * time.Second
)

// With SlotLabel, an object leaves the watch with the same DELETED whether it was deleted or its label was changed, and
// a list does not show it in either case. So the object is looked up by name before it counts as deleted. If it exists,
// it stays in the store, and it is looked up again and again until the watch shows it or it is gone.

// confirmer looks up objects in doubt.
type confirmer struct{ *Source }

// confirm looks up the objects in doubt until ctx ends.
func (c confirmer) confirm(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, lookUps)
	for {
		due, next := c.due(c.now())
		for _, d := range due {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				defer func() { <-free }()
				c.check(ctx, d)
			})
		}
		timer := time.NewTimer(next)
		select {
		case <-c.suspects:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// check looks up the object of a doubt and has the pump act on the answer.
func (c confirmer) check(ctx context.Context, d *stream.Doubt) {
	atLeast, pending, current := c.asks(d)
	if !current {
		return
	}
	name := cache.ObjectName(d.Name)
	obj, version, err := c.LookUp(ctx, name, atLeast)
	// If the whole kind is not served, the DELETED is believed. Without a DELETED the error shows nothing.
	if err != nil && (!NotServed(err) || !pending) {
		if ctx.Err() == nil {
			c.failing(RequestLookUp, time.Now(), err, true)
			c.inf.share.Log.V(1).Info("Cannot look up an object that may be deleted, trying again", "kind", c.inf.Kind.String(),
				"object", name.String(), "error", err.Error())
		}
		c.again(d, c.now())
		c.suspects.raise()
		return
	}
	c.succeeds(RequestLookUp)
	j := job{done: make(chan bool, 1), run: func(p *pump) bool { return p.resolve(d, obj, version) }}
	select {
	case c.jobs <- j:
		<-j.done
	case <-ctx.Done():
	}
}

// resolve acts on the result of a look-up at a version; obj is nil if there is no such object.
func (p *pump) resolve(d *stream.Doubt, obj runtime.Object, version string) bool {
	s := p.source
	var found *stream.Object
	if about, err := meta.Accessor(obj); err == nil {
		o := s.object(obj, about)
		found = &o
		if o.In && !o.Right {
			s.mislabelled(about)
		}
	}
	outs, ended, ok := s.lookedUp(p, d, found, version, s.now())
	if !ok {
		return true
	}
	s.suspects.raise()
	if !p.emit(outs) {
		return false
	}
	if ended {
		s.ended(d)
	}
	return true
}

// stored returns the objects that the store has in some slots. If objects move between slots, it includes objects that
// the reflector has not handed to the store yet, and leaves out objects that came after upTo, unless that is "". For
// other kinds the caller waits for a barrier, and nothing comes while the slots are listed.
func (s *Source) stored(set slot.Set, upTo string) map[stream.Name]stream.Place {
	out := map[stream.Name]stream.Place{}
	if set.Empty() {
		return out
	}
	if s.inf.Role.Owned() {
		return s.sent(set, upTo)
	}
	for n, obj := range s.inf.Objects(set) {
		if about, err := meta.Accessor(obj); err == nil {
			name := stream.Name{Namespace: about.GetNamespace(), Name: about.GetName()}
			out[name] = stream.Place{Slot: n, UID: string(about.GetUID())}
		}
	}
	return out
}

// unlisted returns the objects that the store has in some slots and that a list at a version did not show. It is empty
// if lists show every object that exists.
func (s *Source) unlisted(set slot.Set, version string,
	listed func(stream.Name) bool,
) map[stream.Name]stream.Place {
	if !s.scope.Leaves() {
		return nil
	}
	old := s.stored(set, version)
	maps.DeleteFunc(old, func(name stream.Name, _ stream.Place) bool { return listed(name) })
	return old
}

// verify looks up objects that a list of the slots at a version did not show. It returns those that exist there
// nevertheless, because their labels are wrong.
func (s *Source) verify(ctx context.Context, names map[stream.Name]stream.Place, set slot.Set,
	version string,
) ([]stream.Object, error) {
	var mu sync.Mutex
	var out []stream.Object
	var errs []error
	var wg sync.WaitGroup
	free := make(chan struct{}, lookUps)
	for name, was := range names {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			key := cache.ObjectName(name)
			obj, _, err := s.LookUp(ctx, key, version)
			for retries := 0; err != nil && (apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)) && retries < 3 &&
				ctx.Err() == nil; retries++ {
				obj, _, err = s.LookUp(ctx, key, version)
			}
			about, accessErr := meta.Accessor(obj)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, err)
			case accessErr != nil || string(about.GetUID()) != was.UID:
			default:
				if !s.scope.Right(about) {
					s.mislabelled(about)
				}
				if o := s.object(obj, about); o.In && set.Has(o.Slot) {
					out = append(out, o)
				}
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}
