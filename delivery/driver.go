package delivery

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// drive brings the store in step with the slots that the share wants, one step after the other, until ctx ends.
// It looks at the state wanted, not at requests: a slot lost and regained before it got to it stays.
func (s *source) drive(ctx context.Context) {
	for ctx.Err() == nil {
		t := s.next()
		switch t.kind {
		case nothing:
			select {
			case <-s.kick:
			case <-ctx.Done():
			}
		case drop:
			s.drop(ctx, t)
		case settle:
			s.settle(ctx, t)
		case grow:
			s.grow(ctx, t)
		}
	}
}

type taskKind uint8

const (
	nothing taskKind = iota
	drop             // slots that the stream carries but the share does not want
	settle           // slots that the stream carries but of which no barrier has come by
	grow             // slots to list: wanted and not carried, or to be loaded anew
)

// task is one step. gen tells whether a list of the whole has overtaken it.
type task struct {
	kind   taskKind
	set    slot.Set
	gen    uint64
	ticket uint64
	// carried are slots of set that the store holds already. For grow.
	carried slot.Set
}

// next decides what to do. drop takes effect here: the stream does not carry those slots from now on.
func (s *source) next() task {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := task{gen: s.gen, ticket: s.ticket}
	if s.gen == 0 {
		return t // the first list brings everything wanted
	}
	held := s.inf.held()
	var dropped, unsettled, wanted, carried slot.Set
	for i := range s.got {
		n := slot.Slot(i)
		switch {
		case !held.Has(n):
			if s.got[i] > 0 {
				dropped.Add(n)
				s.got[i], s.ready[i] = 0, 0
			}
		case s.got[i] < max(s.want[i], 1):
			wanted.Add(n)
			if s.got[i] > 0 {
				carried.Add(n)
			}
		case s.ready[i] < s.got[i]:
			unsettled.Add(n)
		}
	}
	switch {
	case !dropped.Empty():
		s.first = s.first.Minus(dropped)
		s.forgive(dropped)
		t.kind, t.set = drop, dropped
	case !unsettled.Empty():
		t.kind, t.set = settle, unsettled
	case !wanted.Empty():
		t.kind, t.set, t.carried = grow, wanted, carried
	}
	return t
}

// drop removes the objects of slots lost from the store. The barrier makes the index show all of them.
func (s *source) drop(ctx context.Context, t task) {
	defer s.observe()()
	if _, err := s.barrier(ctx, slot.Set{}); err != nil {
		return
	}
	keys := s.inf.keys(t.set)
	s.do(ctx, t, func(p *pump) bool { return p.bury(keys, t.set, markLost) })
	s.inf.takeMissed(t.set.Minus(s.inf.share.Held()))
}

// settle makes slots ready once the store holds what the stream carries of them.
func (s *source) settle(ctx context.Context, t task) {
	s.mu.Lock()
	if s.gen != t.gen {
		s.mu.Unlock()
		return
	}
	got := map[slot.Slot]uint64{}
	var fresh slot.Set
	for _, n := range t.set.Slots() {
		got[n] = s.got[n]
		if s.ready[n] == 0 && !s.first.Has(n) || s.inf.arrived[n].Load() == never {
			fresh.Add(n)
		}
	}
	s.mu.Unlock()
	if _, err := s.barrier(ctx, fresh); err != nil {
		return
	}
	s.mu.Lock()
	if s.gen != t.gen {
		s.mu.Unlock()
		return // settled anew, after the list that overtook this
	}
	var late slot.Set
	for n, ticket := range got {
		if s.got[n] == ticket {
			s.ready[n] = ticket
			if s.late.Has(n) && s.complete(n) {
				late.Add(n)
			}
		}
	}
	s.without, s.late = s.without.Minus(late), s.late.Minus(late)
	s.changed()
	s.mu.Unlock()
	if !late.Empty() {
		s.inf.share.completes(s.inf, late)
	}
}

// grow lists the slots while the events of their objects are held back, and has the pump send what the list shows,
// what it does not show any more, and those events, in this order.
//
// A watch that does not bring these slots' events is replaced first, by one that does, from the position. Every list
// is newer than that.
func (s *source) grow(ctx context.Context, t task) {
	defer s.observe()()
	s.mu.Lock()
	if s.gen != t.gen {
		s.mu.Unlock()
		return
	}
	s.warming, s.buffer = t.set, nil
	s.mu.Unlock()
	s.do(ctx, t, func(p *pump) bool {
		p.widen(t.set)
		return true
	})
	// What the pump sent of slots carried already has to be in the store before it is compared with the list.
	if _, err := s.barrier(ctx, slot.Set{}); err != nil {
		return
	}
	begun := time.Now()
	items, strays, version, ok := s.list(ctx, t)
	if !ok {
		return
	}
	took := time.Since(begun)
	s.mu.Lock()
	s.took = took
	s.mu.Unlock()
	s.inf.share.log.V(1).Info("Listed slots on their way here", "kind", s.inf.kind.String(), "objects", len(items), "took", took.String())
	if version == "" {
		s.growAbsent(ctx, t)
		return
	}
	old := map[string]slot.Slot{}
	if !t.carried.Empty() {
		old = s.inf.keys(t.carried)
	}
	s.do(ctx, t, func(p *pump) bool {
		for _, obj := range items {
			if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
				_, had := old[key]
				delete(old, key)
				if s.overtaken(obj) || s.outdated(obj, version) || (had || s.inf.beside(t.set, obj)) && s.same(key, obj) {
					continue
				}
			}
			if !p.send(watch.Event{Type: watch.Added, Object: obj}) {
				return false
			}
		}
		s.mu.Lock()
		s.listed = version
		s.mu.Unlock()
		if !p.bury(old, t.set, markMissing) {
			return false
		}
		return p.release(t, version, strays)
	})
}

// growAbsent takes slots into the stream although their kind is not served: there is nothing of them. Nothing is
// concluded about objects that the store has, and once the watch is open again the whole is listed.
func (s *source) growAbsent(ctx context.Context, t task) {
	s.do(ctx, t, func(p *pump) bool {
		s.mu.Lock()
		s.stale = true
		version := s.position
		s.mu.Unlock()
		if !p.release(t, version, nil) {
			return false
		}
		p.reopen() // in case that it is open still
		return true
	})
}

// same says whether the store has this very version of an object. Of an owned kind the stream tells: the store may have
// it for a moment only, from the farewells of one that went to a slot of the list, of which the second is under way.
func (s *source) same(key string, obj runtime.Object) bool {
	if s.inf.owned() {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.sent[key].version == versionOf(obj)
	}
	old, exists, err := s.inf.GetIndexer().GetByKey(key)
	return err == nil && exists && versionOf(old) == versionOf(obj)
}

// release ends the warming of a task's slots: the stream carries them from the version of their list on. The pump
// calls it on its own goroutine, so that no event comes between.
func (p *pump) release(t task, version string, strays []runtime.Object) bool {
	s := p.source
	s.mu.Lock()
	if s.pump != p || s.gen != t.gen {
		s.mu.Unlock()
		return false
	}
	buffer := s.buffer
	s.warming, s.buffer = slot.Set{}, nil
	s.forgive(t.set)
	s.keepStrays(strays)
	behind := resourceversion.Compare(version, s.position) > 0
	if behind && s.floors == nil {
		s.floors = make([]string, len(s.got))
	}
	if s.since == nil {
		s.since = make([]string, len(s.got))
	}
	for _, n := range t.set.Slots() {
		s.got[n] = t.ticket
		if s.since[n] == "" {
			s.since[n] = version
		}
		if behind {
			s.floors[n] = version
		}
	}
	if behind && resourceversion.Compare(version, s.floorMax) > 0 {
		s.floorMax = version
	}
	s.mu.Unlock()
	for _, e := range buffer {
		v := versionOf(e.Object)
		if resourceversion.Compare(v, version) <= 0 {
			s.superseded(e, v)
			continue
		}
		if s.inf.owned() {
			if !p.replay(e, v) {
				return false
			}
			continue
		}
		n, _, _ := s.inf.slotOf(e.Object)
		s.mu.Lock()
		s.see(n, v)
		s.mu.Unlock()
		about, err := meta.Accessor(e.Object)
		if err == nil && !p.pass(e, n, about) {
			return false
		}
	}
	s.mu.Lock()
	s.caughtUp()
	s.changed()
	s.mu.Unlock()
	return true
}

func versionOf(obj any) string {
	about, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return about.GetResourceVersion()
}
