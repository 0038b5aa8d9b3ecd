package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
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

func (s *source) suspect() {
	select {
	case s.suspects <- struct{}{}:
	default:
	}
}

// With SlotLabel, an object leaves the watch with the same DELETED whether it was deleted or its label was changed, and
// a list does not show it in either case. So the object is looked up by name before it counts as deleted. If it exists,
// it stays in the store, and it is looked up again and again until the watch shows it or it is gone.

// confirm looks up the objects in doubt until ctx ends.
func (s *source) confirm(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, lookUps)
	for {
		s.mu.Lock()
		due, next := s.core.Due(s.now())
		s.mu.Unlock()
		for _, d := range due {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				defer func() { <-free }()
				s.check(ctx, d)
			})
		}
		timer := time.NewTimer(next)
		select {
		case <-s.suspects:
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
func (s *source) check(ctx context.Context, d *stream.Doubt) {
	s.mu.Lock()
	atLeast, pending, current := s.core.Asks(d)
	s.mu.Unlock()
	if !current {
		return
	}
	name := cache.ObjectName(d.Name)
	obj, version, err := s.lookUp(ctx, name, atLeast)
	// If the whole kind is not served, the DELETED is believed. Without a DELETED the error tells nothing.
	if err != nil && (!notServed(err) || !pending) {
		if ctx.Err() == nil {
			s.failing(RequestLookUp, time.Now(), err, true)
			s.inf.share.log.V(1).Info("Cannot look up an object that may be deleted, trying again", "kind", s.inf.kind.String(),
				"object", name.String(), "error", err.Error())
		}
		s.mu.Lock()
		s.core.Again(d, s.now(), firstBackoff, lastRetry)
		s.mu.Unlock()
		s.suspect()
		return
	}
	s.succeeds(RequestLookUp)
	j := job{done: make(chan bool, 1), run: func(p *pump) bool { return p.resolve(d, obj, version) }}
	select {
	case s.jobs <- j:
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
	s.mu.Lock()
	if s.pump != p {
		s.mu.Unlock()
		return true
	}
	outs, ended := s.core.LookedUp(nil, d, found, version, s.now())
	if !ended {
		s.changed()
	}
	s.mu.Unlock()
	s.suspect()
	if !p.emit(outs) {
		return false
	}
	if !ended {
		return true
	}
	s.mu.Lock() // only now: Reached must not report the deletion before it is sent
	defer s.mu.Unlock()
	s.core.Ended(d)
	s.changed()
	return true
}

// lookUp reads an object by its name, at the version atLeast or later. It returns nil if the object does not exist or
// does not match the user's selectors.
func (s *source) lookUp(ctx context.Context, key cache.ObjectName, atLeast string) (runtime.Object, string, error) {
	set := fields.Set{"metadata.name": key.Name}
	if key.Namespace != "" {
		set["metadata.namespace"] = key.Namespace // with both, the API server reads one object instead of all
	}
	var o sharding.Request
	o.FieldSelector = set.String() // without a version: a consistent read
	if atLeast != "" {
		o.ResourceVersion, o.ResourceVersionMatch = atLeast, metav1.ResourceVersionMatchNotOlderThan
	}
	for {
		page, err := s.upstream.list(ctx, o)
		if err != nil {
			return nil, "", err
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return nil, "", fmt.Errorf("list of %s: %w", s.inf.kind, err)
		}
		var found runtime.Object
		// The ListerWatcher may have replaced our field selector by its own.
		err = meta.EachListItem(page, func(obj runtime.Object) error {
			if about, err := meta.Accessor(obj); err == nil && about.GetName() == key.Name &&
				about.GetNamespace() == key.Namespace {
				found = s.detach(obj)
			}
			return nil
		})
		if err != nil {
			return nil, "", fmt.Errorf("list of %s: %w", s.inf.kind, err)
		}
		if o.Continue = list.GetContinue(); found != nil || o.Continue == "" {
			return found, list.GetResourceVersion(), nil
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
}

// stored returns what the store has in some slots. Where objects move between slots it includes what the reflector has
// not handed to the store yet, and leaves out what came after upTo, unless that is "". Elsewhere the caller waits for a
// barrier, and nothing comes while the slots are listed.
func (s *source) stored(set slot.Set, upTo string) map[stream.Name]stream.Place {
	out := map[stream.Name]stream.Place{}
	if set.Empty() {
		return out
	}
	if s.inf.role.Owned() {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.core.Stored(set, upTo)
	}
	for n, obj := range s.inf.objects(set) {
		if about, err := meta.Accessor(obj); err == nil {
			name := stream.Name{Namespace: about.GetNamespace(), Name: about.GetName()}
			out[name] = stream.Place{Slot: n, UID: string(about.GetUID())}
		}
	}
	return out
}

// unlisted returns what the store has in some slots and a list at a version did not show. It is empty where a list
// shows whatever exists.
func (s *source) unlisted(set slot.Set, version string,
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
func (s *source) verify(ctx context.Context, names map[stream.Name]stream.Place, set slot.Set,
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
			obj, _, err := s.lookUp(ctx, key, version)
			for retries := 0; err != nil && (apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)) && retries < 3 &&
				ctx.Err() == nil; retries++ {
				obj, _, err = s.lookUp(ctx, key, version)
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
