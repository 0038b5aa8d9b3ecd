package deliverytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// random changes the share at random under random traffic and faults, breaking labels too, and checks at checkpoints
// that
//
//   - the store is the server's share;
//   - the last reconcile of every object in an open slot saw its last state, deletions since warming included;
//   - no deletion was heard that never was;
//   - nothing was heard of a slot that was not open.
func (s suite) random(t *testing.T) {
	for _, seed := range Seeds(t, 1) {
		t.Run(fmt.Sprintf("%s=%d", SeedVariable, seed), func(t *testing.T) { s.walk(t, seed) })
	}
}

func (s suite) walk(t *testing.T, seed uint64) {
	w := &walk{rig: s.rig(t), gone: 3, rng: rand.New(rand.NewPCG(seed, 0)), deleted: map[types.UID]deletion{},
		created: map[types.UID]string{},
		broken:  map[types.NamespacedName]bool{}, strays: map[types.UID]bool{}}
	w.watch = &watcher{w: w}
	_, err := w.informer.AddEventHandler(w.watch)
	w.must(err)
	for n := range w.slots {
		w.slots[n].closed = "0"
	}
	w.fill(2, 0, 1, 2, 3, 4, 5, 6, 7)
	w.run(w.informer)
	for step := 0; step < s.steps; {
		stop := w.traffic(seed + uint64(step))
		for range 30 {
			step++
			w.change()
			for range w.rng.IntN(4) {
				pace()
			}
		}
		stop()
		w.checkpoint()
		if t.Failed() {
			return
		}
	}
}

type walk struct {
	*rig
	rng   *rand.Rand
	watch *watcher
	busy  sync.WaitGroup

	mu      sync.Mutex
	slots   [slots]walkSlot
	deleted map[types.UID]deletion
	created map[types.UID]string
	last    string // highest version known to the traffic
	// gone is how often there may be a 410 Gone still: the reflector waits twice as long before each list.
	gone int
	// broken are the objects whose label the traffic has broken.
	broken map[types.NamespacedName]bool
	// strays have had a wrong label once: who gained their slot then may not have known them. Guarded by mu.
	strays map[types.UID]bool
}

type walkSlot struct {
	held, busy, open bool
	// closed is a version not below those that existed when the slot was closed.
	closed string
	// called and returned are versions at the call of Warm and the return of Load that brought the slot; returned is
	// "" without Load. Then the stream may be behind: an object created and deleted since is not known of.
	called, returned string
}

// deletion says what was deleted after a version.
type deletion struct {
	key   types.NamespacedName
	after string
}

func (w *walk) version() string {
	_, version, err := w.kind.Client.List(w.ctx)
	w.must(err)
	return version
}

func (w *walk) pick(want func(walkSlot) bool) slot.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	var set slot.Set
	for n := range w.slots {
		if want(w.slots[n]) && w.rng.IntN(2) == 0 {
			set.Add(slot.Slot(n))
		}
	}
	return set
}

func (w *walk) each(set slot.Set, do func(*walkSlot)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range set.Slots() {
		do(&w.slots[n])
	}
}

func (w *walk) change() {
	switch w.rng.IntN(12) {
	case 0, 1, 2:
		set := w.pick(func(s walkSlot) bool { return !s.held && !s.busy })
		w.gain(set, w.rng.IntN(4))
	case 3, 4, 5:
		set := w.pick(func(s walkSlot) bool { return s.held && !s.busy && !s.open })
		w.each(set, func(s *walkSlot) { s.open = true })
		w.openNow(set)
	case 6:
		set := w.pick(func(s walkSlot) bool { return s.open })
		w.share.Shut(set)
		closed := w.version()
		w.each(set, func(s *walkSlot) { s.open, s.closed = false, closed })
	case 7, 8:
		set := w.pick(func(s walkSlot) bool { return s.held })
		w.share.Release(set)
		closed := w.version()
		w.each(set, func(s *walkSlot) {
			if s.open {
				s.open, s.closed = false, closed
			}
			s.held = false
		})
	case 9:
		w.faults.Cut()
	case 10:
		if w.gone--; w.gone >= 0 {
			w.faults.Expire()
		}
	case 11:
		switch w.rng.IntN(3) {
		case 0:
			w.faults.FailLists(apierrors.NewTooManyRequests("injected", 0))
		case 1:
			if w.kind.Compact != nil && w.gone > 0 {
				w.gone--
				w.kind.Compact()
				w.faults.Cut()
			}
		case 2:
			resume := w.faults.Pause()
			w.busy.Go(func() {
				pace()
				resume()
			})
			w.busy.Wait()
		}
	}
}

// gain warms slots in the background; they may be released meanwhile.
func (w *walk) gain(set slot.Set, how int) {
	called := w.version()
	w.each(set, func(s *walkSlot) { s.held, s.busy = true, true })
	w.share.Hold(set)
	w.busy.Go(func() {
		err := w.share.Warm(w.ctx, set)
		if err == nil && how > 0 {
			cause, versions := table.CauseExpelled, table.Versions(nil)
			if how == 1 {
				w.mu.Lock()
				cause, versions = table.CauseHanded, table.Versions{w.kind.GroupKind.String(): w.last}
				w.mu.Unlock()
			}
			err = w.share.Load(w.ctx, set, cause, versions, false)
		}
		if err != nil && !isReleased(err) {
			w.t.Error(err)
		}
		returned := w.version()
		if err != nil {
			w.share.Release(set)
		}
		if how == 0 {
			returned = ""
		}
		w.each(set, func(s *walkSlot) {
			s.busy, s.called, s.returned = false, called, returned
			s.held = s.held && err == nil
		})
	})
}

// traffic changes objects until it is stopped.
func (w *walk) traffic(seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	rng := rand.New(rand.NewPCG(seed, 1))
	var wg sync.WaitGroup
	wg.Go(func() {
		objects, _, err := w.kind.Client.List(w.ctx)
		if err != nil {
			w.t.Error(err)
			return
		}
		var live []Object
		for _, obj := range objects {
			if obj.Labels[label] == w.label {
				live = append(live, obj)
			}
		}
		for ctx.Err() == nil {
			if err := w.touch(rng, &live); err != nil {
				w.t.Error(err)
				return
			}
			if rng.IntN(3) == 0 {
				pace()
			}
		}
		for key := range w.broken {
			if err := w.repair(key); err != nil {
				w.t.Error(err)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (w *walk) touch(rng *rand.Rand, live *[]Object) error {
	var obj Object
	var err error
	i := 0
	if len(*live) > 0 {
		i = rng.IntN(len(*live))
	}
	switch dice := rng.IntN(10); {
	case dice < 3 && len(*live) < 60 || len(*live) == 0:
		n := rng.IntN(300)
		key := types.NamespacedName{Namespace: w.kind.Namespaces[n%len(w.kind.Namespaces)],
			Name: fmt.Sprintf("r%d-%s", n, w.label)}
		obj, err = w.kind.Client.Create(w.ctx, key, w.labels(key))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		*live = append(*live, obj)
	case dice == 3 && w.delivery == sharding.SlotLabel:
		key := (*live)[i].Key
		values := []string{"", "nonsense", strconv.Itoa(rng.IntN(4096))}
		w.broken[key] = true
		w.mu.Lock()
		w.strays[(*live)[i].UID] = true
		w.mu.Unlock()
		obj, err = w.kind.Client.Relabel(w.ctx, key, map[string]string{w.hashLabel(): values[rng.IntN(3)]})
	case dice < 7:
		obj, err = w.kind.Client.Update(w.ctx, (*live)[i].Key)
	default:
		gone := (*live)[i]
		if err := w.repair(gone.Key); err != nil { // or nobody may know of it
			return err
		}
		w.mu.Lock()
		w.deleted[gone.UID] = deletion{gone.Key, w.last}
		w.mu.Unlock()
		_, err = w.kind.Client.Delete(w.ctx, gone.Key)
		(*live)[i] = (*live)[len(*live)-1]
		*live = (*live)[:len(*live)-1]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if resourceversion.Compare(w.last, obj.Version) < 0 {
		w.last = obj.Version
	}
	if _, known := w.created[obj.UID]; !known && obj.UID != "" {
		w.created[obj.UID] = obj.Version
	}
	return err
}

// repair does what a labeller does.
func (w *walk) repair(key types.NamespacedName) error {
	if !w.broken[key] {
		return nil
	}
	delete(w.broken, key)
	_, err := w.kind.Client.Relabel(w.ctx, key, w.labels(key))
	return err
}

func (w *walk) checkpoint() {
	w.t.Helper()
	w.busy.Wait()
	w.sync()
	var held, open slot.Set
	for n, s := range w.slots {
		if s.held {
			held.Add(slot.Slot(n))
		}
		if s.open {
			open.Add(slot.Slot(n))
		}
	}
	w.wantStore(held)
	w.wantLevel(open)
	w.eventually(func() error {
		levels, seen := w.heard.levels(), w.heard.seen()
		for uid, d := range w.deleted {
			n := w.slot(Object{Key: d.key, UID: uid})
			s := w.slots[n]
			created, known := w.created[uid]
			if !s.open || s.returned == "" || resourceversion.Compare(d.after, s.returned) <= 0 {
				continue
			}
			if _, again := store(w.informer)[d.key]; again {
				continue
			}
			level, reconciled := levels[d.key]
			// Where a stray's slot was gained since, nobody knew the object before its label was repaired.
			stray := w.strays[uid]
			if known && !stray && resourceversion.Compare(created, s.called) <= 0 && !reconciled ||
				level != "" && seen[d.key] == uid && (!stray || resourceversion.Compare(level, s.called) > 0) {
				return fmt.Errorf("the deletion of %v in open slot %v after version %s was missed: the last reconcile saw %q",
					d.key, n, d.after, level)
			}
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.heard.history() {
		if _, gone := w.deleted[e.uid]; e.what == "delete" && !gone {
			w.t.Errorf("heard a deletion that never was: %v in slot %v", e, w.slot(e.object()))
		}
	}
}

// watcher hears what the recorder hears and checks that it may.
type watcher struct{ w *walk }

func (h *watcher) OnAdd(obj any, _ bool) { h.on("add", obj) }
func (h *watcher) OnUpdate(_, obj any)   { h.on("update", obj) }
func (h *watcher) OnDelete(any)          {}

func (h *watcher) on(what string, obj any) {
	o := objectOfAny(obj)
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	n := h.w.slot(o)
	if s := h.w.slots[n]; !s.open && resourceversion.Compare(o.Version, s.closed) > 0 {
		h.w.t.Errorf("heard %s of %v at %s in slot %v, which is not open since %s", what, o.Key, o.Version, n, s.closed)
	}
}
