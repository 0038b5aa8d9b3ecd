package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// With SlotLabel an object whose label is removed or changed leaves the watch with the same DELETED as one that was
// deleted: its last state that was selected, at the version of the change. Nothing in it tells the two apart. Where a list
// does not show an object that the store has, it is the same. So each of them is looked up by its name before it counts as
// deleted.
//
// An object that exists stays in the store. The watch says nothing about it any more, so it is looked up again
// and again until its label is right, when the watch brings it, or it is gone.

const (
	// lookUps is how many objects are looked up at a time, per informer. To the API server each is a read of one
	// object from its watch cache.
	lookUps    = 16
	firstCheck = time.Second
	lastCheck  = 30 * time.Second
)

// doubt is an object in the store that the watch does not tell of, or did not when it was last heard of. The fields are
// guarded by source.mu; a doubt in the map source.doubts is current, others are void.
type doubt struct {
	key  cache.ObjectName
	slot slot.Slot
	uid  types.UID
	last runtime.Object // as it was last sent to the store, or as DELETED showed it
	// gone is a DELETED that has not been passed on; its type is "" where the object is known to exist.
	gone    watch.Event
	version string // of gone, or else of the last state sent
	due     time.Time
	pause   time.Duration
	busy    bool
}

// unsure says whether the object may be gone by a version. s.mu is held.
func (s *source) unsure(slots []slot.Slot, version string) bool {
	for _, d := range s.doubts {
		if d.gone.Type != "" && table.CompareVersions(d.version, version) <= 0 && (slots == nil || slices.Contains(slots, d.slot)) {
			return true
		}
	}
	return false
}

// doubtful decides what becomes of an event that is wanted. It returns the events to send now. The pump calls it.
func (s *source) doubtful(e watch.Event, n slot.Slot, about metav1.Object) []watch.Event {
	if !s.scope.leaves() {
		return []watch.Event{e}
	}
	key := cache.MetaObjectToName(about)
	wrong := e.Type != watch.Deleted && !s.scope.right(about)
	s.mu.Lock()
	out := []watch.Event{e}
	d := s.doubts[key]
	if d != nil && table.CompareVersions(about.GetResourceVersion(), d.version) <= 0 {
		s.mu.Unlock()
		return nil // older than what a look-up showed
	}
	delete(s.doubts, key)
	if d != nil && d.uid != about.GetUID() {
		// Its namesake came, so it is gone for sure.
		out = []watch.Event{d.deletion(d.version), e}
	}
	switch {
	case e.Type == watch.Deleted:
		out = out[:len(out)-1]
		s.doubts[key] = &doubt{key: key, slot: n, uid: about.GetUID(), last: e.Object, gone: e, version: about.GetResourceVersion()}
	case wrong:
		s.doubts[key] = s.stray(key, n, about, e.Object.DeepCopyObject()) // a transform may change what is sent
	}
	if d != nil {
		s.changed()
	}
	s.mu.Unlock()
	s.suspect()
	if wrong {
		s.mislabelled(about)
	}
	return out
}

func (s *source) stray(key cache.ObjectName, n slot.Slot, about metav1.Object, obj runtime.Object) *doubt {
	return &doubt{
		key: key, slot: n, uid: about.GetUID(), last: obj, version: about.GetResourceVersion(),
		due: time.Now().Add(firstCheck), pause: firstCheck,
	}
}

// deletion is the event that tells of the object's end.
func (d *doubt) deletion(version string) watch.Event {
	if d.gone.Type != "" {
		return d.gone
	}
	obj := d.last.DeepCopyObject()
	if about, err := meta.Accessor(obj); err == nil {
		about.SetResourceVersion(version)
	}
	return watch.Event{Type: watch.Deleted, Object: obj}
}

// forgive forgets the doubts about slots. s.mu is held.
func (s *source) forgive(set slot.Set) {
	for key, d := range s.doubts {
		if set.Has(d.slot) {
			delete(s.doubts, key)
		}
	}
}

// keepStrays notes objects of a list that the watch may not tell of. s.mu is held.
func (s *source) keepStrays(strays []runtime.Object) {
	for _, obj := range strays {
		n, _, ok := s.inf.share.slotOf(obj)
		if about, err := meta.Accessor(obj); err == nil && ok {
			key := cache.MetaObjectToName(about)
			s.doubts[key] = s.stray(key, n, about, obj)
		}
	}
	if len(strays) > 0 {
		s.suspect()
	}
}

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
	slices.SortFunc(out, func(a, b *doubt) int { return table.CompareVersions(a.version, b.version) })
	return out, next
}

// check looks a doubt up and has the pump act on the answer.
func (s *source) check(ctx context.Context, d *doubt) {
	s.mu.Lock()
	current, atLeast := s.doubts[d.key] == d, d.version
	if table.CompareVersions(atLeast, s.position) < 0 {
		atLeast = s.position
	}
	s.mu.Unlock()
	if !current {
		return
	}
	obj, version, err := s.lookUp(ctx, d.key, atLeast)
	if err != nil && !notServed(err) {
		if ctx.Err() == nil {
			s.inf.share.log.V(1).Info("Cannot look up an object that may be deleted, trying again", "kind", s.inf.kind.String(),
				"object", d.key.String(), "error", err.Error())
		}
		s.mu.Lock()
		d.again(firstBackoff)
		s.mu.Unlock()
		s.suspect()
		return
	}
	j := job{done: make(chan bool, 1), run: func(p *pump) bool { return p.resolve(d, obj, version) }}
	select {
	case s.jobs <- j:
		<-j.done
	case <-ctx.Done():
	}
}

// again sets the time of the next look. s.mu is held.
func (d *doubt) again(first time.Duration) {
	d.busy = false
	d.pause = min(max(2*d.pause, first), lastCheck)
	d.due = time.Now().Add(d.pause)
}

// resolve acts on what a look-up at a version showed; obj is nil where there is no such object.
func (p *pump) resolve(d *doubt, obj runtime.Object, version string) bool {
	s := p.source
	about, _ := meta.Accessor(obj)
	s.mu.Lock()
	if s.pump != p || s.doubts[d.key] != d || s.got[d.slot] == 0 {
		s.mu.Unlock()
		return true // overtaken by an event, a list or a loss
	}
	if s.warming.Has(d.slot) {
		d.busy, d.due = false, time.Now().Add(firstBackoff) // the list that is under way will decide
		s.mu.Unlock()
		s.suspect()
		return true
	}
	if obj == nil || about.GetUID() != d.uid {
		e := d.deletion(version)
		s.see(d.slot, versionOf(e.Object))
		s.mu.Unlock()
		// reached must not say so before it is sent.
		sent := p.send(e)
		s.mu.Lock()
		if s.doubts[d.key] == d {
			delete(s.doubts, d.key)
		}
		s.changed()
		s.mu.Unlock()
		return sent
	}
	right := s.scope.right(about)
	newer := table.CompareVersions(about.GetResourceVersion(), versionOf(d.last)) > 0
	if d.gone.Type != "" {
		d.gone, d.pause = watch.Event{}, 0
		newer = true // the exit itself is a change that the store has not seen
	}
	// Where the label is right, the watch brings the object.
	if newer && !right {
		d.last, d.version = obj.DeepCopyObject(), about.GetResourceVersion()
	}
	d.again(firstCheck)
	s.changed()
	s.mu.Unlock()
	s.suspect()
	if right {
		return true
	}
	s.mislabelled(about)
	return !newer || p.send(watch.Event{Type: watch.Modified, Object: obj})
}

// lookUp reads an object by its name, at a version or a later one; nil: it does not exist, or does not match the user's selectors.
func (s *source) lookUp(ctx context.Context, key cache.ObjectName, atLeast string) (runtime.Object, string, error) {
	set := fields.Set{"metadata.name": key.Name}
	if key.Namespace != "" {
		set["metadata.namespace"] = key.Namespace // with both, the API server reads one object instead of all
	}
	o := metav1.ListOptions{FieldSelector: set.String(), ResourceVersion: atLeast, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
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

// verify returns those objects of the store in the slots that a list at a version did not show although they exist.
func (s *source) verify(ctx context.Context, set slot.Set, listed map[string]struct{}, version string) ([]runtime.Object, error) {
	if !s.scope.leaves() {
		return nil, nil
	}
	var mu sync.Mutex
	var out []runtime.Object
	var errs []error
	var wg sync.WaitGroup
	free := make(chan struct{}, lookUps)
	for text := range s.inf.keys(set) {
		if _, ok := listed[text]; ok {
			continue
		}
		key, err := cache.ParseObjectName(text)
		old, exists, storeErr := s.inf.GetIndexer().GetByKey(text)
		if err != nil || storeErr != nil || !exists {
			continue
		}
		before, err := meta.Accessor(old)
		if err != nil {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			obj, _, err := s.lookUp(ctx, key, version)
			for retries := 0; err != nil && (apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)) && retries < 3 && ctx.Err() == nil; retries++ {
				obj, _, err = s.lookUp(ctx, key, version)
			}
			about, accessErr := meta.Accessor(obj)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, err)
			case accessErr == nil && about.GetUID() == before.GetUID():
				out = append(out, obj)
			}
		})
	}
	wg.Wait()
	for _, obj := range out {
		if about, err := meta.Accessor(obj); err == nil && !s.scope.right(about) {
			s.mislabelled(about)
		}
	}
	return out, errors.Join(errs...)
}

// copies are for the strays of a list: a transform may change what is sent.
func copies(objs []runtime.Object) []runtime.Object {
	out := make([]runtime.Object, len(objs))
	for i, obj := range objs {
		out[i] = obj.DeepCopyObject()
	}
	return out
}
