package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
)

const (
	// lookUps is how many objects are looked up at a time, per informer. To the API server each is a read of one
	// object from its watch cache.
	lookUps    = 16
	firstCheck = time.Second
	lastCheck  = time.Minute
	// lastRetry is the longest wait where a look-up failed: a deletion may wait for it.
	lastRetry = 2 * time.Second
)

func (s *source) suspect() {
	select {
	case s.suspects <- struct{}{}:
	default:
	}
}

// confirm looks up what is in doubt until ctx ends.
func (s *source) confirm(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, lookUps)
	for {
		due, next := s.due(time.Now())
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

// due returns the doubts to look into now, and how long it is to the next one.
func (s *source) due(now time.Time) ([]*doubt, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*doubt
	next := lastCheck
	for _, d := range s.doubts {
		switch wait := d.due.Sub(now); {
		case d.busy:
		case wait <= 0:
			d.busy = true
			out = append(out, d)
		default:
			next = min(next, wait)
		}
	}
	// The oldest first, as they came.
	slices.SortFunc(out, func(a, b *doubt) int { return resourceversion.Compare(a.version, b.version) })
	return out, next
}

// check looks a doubt up and has the pump act on the answer.
func (s *source) check(ctx context.Context, d *doubt) {
	s.mu.Lock()
	current, told, atLeast := s.doubts[d.key] == d, d.gone.Type != "", d.version
	for _, version := range []string{s.position, s.floorMax} { // a list may be newer than the position
		if resourceversion.Compare(atLeast, version) < 0 {
			atLeast = version
		}
	}
	s.mu.Unlock()
	if !current {
		return
	}
	obj, version, err := s.lookUp(ctx, d.key, atLeast)
	// Where the whole kind is not served, a DELETED may be believed. Without one nothing is known.
	if err != nil && (!notServed(err) || !told) {
		if ctx.Err() == nil {
			s.failing(RequestLookUp, err, true)
			s.inf.share.log.V(1).Info("Cannot look up an object that may be deleted, trying again", "kind", s.inf.kind.String(),
				"object", d.key.String(), "error", err.Error())
		}
		s.mu.Lock()
		d.again(firstBackoff, lastRetry)
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

// again sets the time of the next look. s.mu is held.
func (d *doubt) again(first, last time.Duration) {
	d.busy = false
	d.pause = min(max(2*d.pause, first), last)
	d.due = time.Now().Add(d.pause)
}

// resolve acts on what a look-up at a version showed; obj is nil where there is no such object.
func (p *pump) resolve(d *doubt, obj runtime.Object, version string) bool {
	s := p.source
	about, _ := meta.Accessor(obj)
	s.mu.Lock()
	if s.pump != p || s.doubts[d.key] != d {
		s.mu.Unlock()
		return true // overtaken by an event or a list
	}
	is, there := s.sent[d.key.String()]
	if there {
		d.slot = is.slot
	}
	if s.got[d.slot] == 0 || s.inf.owned() && !there {
		delete(s.doubts, d.key) // lost meanwhile
		s.changed()
		s.mu.Unlock()
		return true
	}
	exists := obj != nil && about.GetUID() == d.uid
	n, has := d.slot, exists
	if exists {
		n, _, has = s.inf.slotOf(obj)
	}
	if s.warming.Has(d.slot) || has && s.warming.Has(n) || resourceversion.Compare(version, s.floorMax) < 0 {
		d.busy, d.due = false, time.Now().Add(firstBackoff) // the list that is under way, or was meanwhile, will decide
		s.mu.Unlock()
		s.suspect()
		return true
	}
	if !has || s.got[n] == 0 {
		var events []watch.Event
		state := ""
		if exists {
			events, state = farewells(obj), about.GetResourceVersion()
		} else {
			events = s.ending(d, version)
		}
		s.see(d.slot, versionOf(events[0].Object))
		s.outrun(d, state, version)
		s.mu.Unlock()
		if has && !s.scope.right(about) {
			s.mislabelled(about)
		}
		// reached must not say so before it is sent.
		sent := p.sendAll(events)
		s.mu.Lock()
		if s.doubts[d.key] == d {
			delete(s.doubts, d.key)
		}
		s.changed()
		s.mu.Unlock()
		return sent
	}
	right := s.scope.right(about)
	newer := resourceversion.Compare(about.GetResourceVersion(), versionOf(d.last)) > 0
	if d.gone.Type != "" {
		d.gone, d.pause = watch.Event{}, 0
		newer = true // the exit itself is a change that the store has not seen
	}
	// Where the label is right, the watch brings the object.
	if newer && !right {
		d.slot, d.last, d.version = n, obj.DeepCopyObject(), about.GetResourceVersion()
		s.see(n, d.version)
	}
	d.again(firstCheck, lastCheck)
	s.changed()
	s.mu.Unlock()
	s.suspect()
	if right {
		return true
	}
	s.mislabelled(about)
	return !newer || p.send(watch.Event{Type: watch.Modified, Object: obj})
}

// lookUp reads an object by its name, at a version or a later one; nil: it does not exist, or does not match the user's
// selectors.
func (s *source) lookUp(ctx context.Context, key cache.ObjectName, atLeast string) (runtime.Object, string, error) {
	set := fields.Set{"metadata.name": key.Name}
	if key.Namespace != "" {
		set["metadata.namespace"] = key.Namespace // with both, the API server reads one object instead of all
	}
	o := metav1.ListOptions{FieldSelector: set.String()} // consistently
	if atLeast != "" {
		o.ResourceVersion, o.ResourceVersionMatch = atLeast, metav1.ResourceVersionMatchNotOlderThan
	}
	for {
		page, err := s.upstream.ListWithContext(ctx, o)
		if err != nil {
			return nil, "", err
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return nil, "", fmt.Errorf("list of %s: %w", s.inf.kind, err)
		}
		var found runtime.Object
		// The ListerWatcher may have put a field selector of its own in place of ours.
		err = meta.EachListItem(page, func(obj runtime.Object) error {
			if about, err := meta.Accessor(obj); err == nil && about.GetName() == key.Name && about.GetNamespace() == key.Namespace {
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
