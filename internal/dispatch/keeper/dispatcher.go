// Package keeper implements a dispatcher: a member of a rota that watches metadata, stores only keys, and hands out the
// keys of its slots to workers.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/dispatch/feed"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Kind configures a kind whose keys are handed out.
type Kind struct {
	Kind schema.GroupKind
	// Namespaces are the objects' namespaces. Empty means all.
	Namespaces []string
	// Selector is a label selector. Empty means all objects.
	Selector string
	// Owns are kinds of children: when a child changes, the key of the object that controls it is handed out. It cannot be
	// used with Selector, since a child does not show its owner's labels.
	Owns []schema.GroupKind
	// MaxTaken is how many keys may be taken at a time at this dispatcher. 0 means as many as workers ask for.
	MaxTaken int
}

// Options configure a Dispatcher.
type Options struct {
	Kinds []Kind
	// Queue contains the limits of the queue. New sets its Slots, Kinds and MaxTaken.
	Queue queue.Config
	// Address is what other dispatchers need to reach this one. It is empty if they do not.
	Address string
	// RememberNames makes the dispatcher remember the names of the objects in its slots, and recent deletions in other
	// slots. It then also hands out deletions that happened while its watch was interrupted for too long, and deletions of
	// a dispatcher that dies while others live. For each object in its slots this takes the name and 12 bytes.
	RememberNames bool
	// Taken is called for each take with the time that the key was ready. Done is called for each take that a worker
	// ended, with the time that the worker had it. They must not block or call the dispatcher. Optional.
	Taken, Done func(kind string, d time.Duration)
	// Resync is how often all objects are handed out even without a known change. 0 means never.
	Resync time.Duration
	Logger logr.Logger
}

// Dispatcher hands out keys. Its methods may be called concurrently.
type Dispatcher struct {
	o     Options
	parts adapter.Parts
	feeds []*feed.Feed
	// lists are the feeds by kind, and children the feeds of the kinds that their objects own.
	lists, children map[string][]*feed.Feed
	ofChildren      map[*feed.Feed]bool
	kick            chan struct{}
	over            chan struct{} // closed when Run returns

	mu    sync.Mutex
	queue *queue.Queue
	clock clock
	armed time.Duration // when the loop wakes up next
	asks  map[uint64]asked
	last  uint64 // the last ask
	idle  map[slot.Slot]func(slot.Slot, []table.Gone)
	life  context.Context //nolint:containedctx // of Run; relists end with it
	again sync.WaitGroup
	// relists are the kinds that are being listed again. The value is true if another list must follow.
	relists map[string]bool
	// memories are the names remembered for each feed. It is nil without Options.RememberNames.
	memories map[*feed.Feed]*remembered
	// kept are the deletions in shut slots that no worker had finished.
	kept recalled[queue.Key]
}

var _ controllers.Keeper = (*Dispatcher)(nil)

// New returns a dispatcher for a rota that has no other controllers. Call it before r.Run.
func New(cfg *rest.Config, r *rota.Rota, o Options) (*Dispatcher, error) {
	d, err := NewOf(r.Adapt(adapter.Grant()), o)
	if err != nil {
		return nil, fmt.Errorf("dispatcher %s: %w", r.Name(), err)
	}
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	mapper := &mapper{ResettableRESTMapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}
	for _, k := range o.Kinds {
		namespaces := k.Namespaces
		if len(namespaces) == 0 {
			namespaces = []string{metav1.NamespaceAll}
		}
		for _, namespace := range namespaces {
			d.follow(k.Kind.String(), &source{
				client: client, mapper: mapper, kind: k.Kind, namespace: namespace, selector: k.Selector, log: o.Logger,
			})
			for _, child := range k.Owns {
				d.followChildren(k.Kind, &source{
					client: client, mapper: mapper, kind: child, namespace: namespace, log: o.Logger,
				}, mapper)
			}
		}
	}
	r.Adapt(adapter.Grant()).Keep(d)
	return d, nil
}

// NewOf returns a dispatcher from parts of a rota. It does not follow objects, and the caller takes the role of the
// rota for a controllers.Keeper: it opens slots, and reports changes with Change.
func NewOf(parts adapter.Parts, o Options) (*Dispatcher, error) {
	if parts.Key == slot.KeyUID {
		return nil, fmt.Errorf("key %s: a name may be in two slots then; use key %s or %s", slot.KeyUID, slot.KeyName,
			slot.KeyNamespace)
	}
	o.Queue.Slots, o.Queue.Kinds, o.Queue.MaxTaken = parts.Slots, nil, map[string]int{}
	for _, k := range o.Kinds {
		o.Queue.Kinds = append(o.Queue.Kinds, k.Kind.String())
		o.Queue.MaxTaken[k.Kind.String()] = k.MaxTaken
		if _, err := labels.Parse(k.Selector); err != nil {
			return nil, fmt.Errorf("kind %s: selector %q: %w", k.Kind, k.Selector, err)
		}
		if k.Selector != "" && len(k.Owns) > 0 {
			return nil, fmt.Errorf("kind %s: owns and selector: a child does not show its owner's labels; use one of them",
				k.Kind)
		}
	}
	q, err := queue.New(o.Queue)
	if err != nil {
		return nil, err
	}
	return &Dispatcher{
		o: o, parts: parts, queue: q, lists: map[string][]*feed.Feed{}, children: map[string][]*feed.Feed{},
		kick:  make(chan struct{}, 1),
		clock: clock{start: time.Now()}, over: make(chan struct{}), asks: map[uint64]asked{},
		idle: map[slot.Slot]func(slot.Slot, []table.Gone){}, relists: map[string]bool{},
		memories: map[*feed.Feed]*remembered{}, ofChildren: map[*feed.Feed]bool{},
		kept: newRecalled[queue.Key](keep, keepMax),
	}, nil
}

// follow adds the objects of a source.
func (d *Dispatcher) follow(kind string, source cache.ListerWatcherWithContext) {
	var f *feed.Feed
	f = feed.New(feed.Options{
		Name: kind, Source: source,
		Event: func(obj metav1.Object, deleted bool) {
			d.event(kind, f, obj, deleted)
			d.step()
		},
		Missed: func() { d.listAgain(kind) },
		Logger: d.o.Logger,
	})
	if d.o.RememberNames {
		d.memories[f] = newRemembered()
	}
	d.feeds = append(d.feeds, f)
	d.lists[kind] = append(d.lists[kind], f)
}

// Run watches until ctx ends. It must continue until Rota.Run has returned. It may be called once.
func (d *Dispatcher) Run(ctx context.Context) {
	defer close(d.over)
	d.mu.Lock()
	d.life = ctx
	d.mu.Unlock()
	var group sync.WaitGroup
	for _, f := range d.feeds {
		group.Go(func() { f.Run(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var resync <-chan time.Time
	if d.o.Resync > 0 {
		tick := time.NewTicker(d.o.Resync)
		defer tick.Stop()
		resync = tick.C
	}
	for {
		select {
		case <-resync:
			for kind := range d.lists {
				d.listAgain(kind)
			}
		case <-timer.C:
		case <-d.kick:
		case <-ctx.Done():
			group.Wait()
			d.again.Wait()
			return
		}
		timer.Reset(max(d.act(true)-time.Since(d.clock.start), 0))
	}
}

// step carries out the queue's actions.
func (d *Dispatcher) step() { d.act(false) }

// maxSleep bounds how long the loop sleeps, since the clock of deadlines may jump.
const maxSleep = 250 * time.Millisecond

// act is step, and returns when the queue wants to be called again. loop is set if the caller waits until then.
func (d *Dispatcher) act(loop bool) time.Duration {
	d.mu.Lock()
	now := d.now()
	actions := d.queue.Actions(now)
	wake := min(d.queue.Wake(), now+maxSleep)
	earlier := wake < d.armed && !loop
	if earlier || loop {
		d.armed = wake
	}
	if loop {
		d.kept.trim(now)
		for _, m := range d.memories {
			m.trim(now)
		}
	}
	var calls []func()
	for _, a := range actions {
		switch a := a.(type) {
		case queue.Given:
			if d.o.Taken != nil {
				for _, t := range a.Takes {
					d.o.Taken(t.Key.Kind, t.Begun-t.Since)
				}
			}
			for i := range a.Takes {
				d.toLate(&a.Takes[i].Begun, &a.Takes[i].Since, &a.Takes[i].Deadline)
			}
			if ask, waits := d.asks[a.Ask]; waits {
				calls = append(calls, func() { ask.answer(a) })
			}
			if a.Over {
				delete(d.asks, a.Ask)
			}
		case queue.Drained:
			for _, s := range a.Slots.Slots() {
				if idle := d.idle[s]; idle != nil {
					delete(d.idle, s)
					left := d.left(s)
					calls = append(calls, func() { idle(s, left) })
				}
			}
		}
	}
	d.mu.Unlock()
	for _, call := range calls {
		call()
	}
	if earlier {
		select {
		case d.kick <- struct{}{}:
		default:
		}
	}
	return wake
}

// left returns the deletions in a slot that no worker has finished. d.mu is held.
func (d *Dispatcher) left(s slot.Slot) []table.Gone {
	var out []table.Gone
	for _, c := range d.queue.Gone(slot.SetOf(slot.Range{First: s, Last: s})) {
		out = append(out, table.Gone{Slot: s, Kind: c.Key.Kind, Namespace: c.Key.Namespace, Name: c.Key.Name})
	}
	return out
}

func (d *Dispatcher) slotOf(obj metav1.Object) slot.Slot {
	return d.parts.Slots.Of(d.parts.Key.Hash(obj.GetNamespace(), obj.GetName(), string(obj.GetUID())))
}

// event handles an event of a watch.
func (d *Dispatcher) event(kind string, f *feed.Feed, obj metav1.Object, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.changeOf(kind, obj, queue.Changed, deleted)
	m, name := d.memories[f], objectName{c.Key.Namespace, c.Key.Name}
	if deleted {
		m.deleted(c.Slot, name, deletion{uid: c.UID, version: c.Version, at: d.parts.Late()})
	} else {
		m.exists(c.Slot, name, c.Version)
		d.kept.exists(c.Key, c.Version)
	}
	d.change(c)
}

func (d *Dispatcher) changeOf(kind string, obj metav1.Object, class queue.Class, deleted bool) queue.Change {
	return queue.Change{
		Key:  queue.Key{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()},
		Slot: d.slotOf(obj), UID: string(obj.GetUID()), Version: obj.GetResourceVersion(), Class: class, Gone: deleted,
	}
}

// Change reports a change of an object that the dispatcher does not follow.
func (d *Dispatcher) Change(c queue.Change) {
	defer d.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.change(c)
}

// change adds a change to the queue. d.mu is held.
func (d *Dispatcher) change(c queue.Change) {
	if err := d.queue.Change(d.now(), c); err != nil {
		d.o.Logger.Error(err, "Cannot record a change", "object", c.Key.String())
	}
}

// recently is how long a change counts as recent.
const recently = time.Minute

// list adds to the queue all objects of a feed in the slots, and those that have disappeared as far as the dispatcher
// remembers them.
func (d *Dispatcher) list(ctx context.Context, kind string, f *feed.Feed, set slot.Set) error {
	m := d.memories[f]
	d.mu.Lock()
	pass := m.begin(set)
	d.mu.Unlock()
	served, err := f.List(ctx, func(obj metav1.Object) error {
		class := queue.Opened
		if time.Since(changed(obj)) < recently {
			class = queue.Recent
		}
		c := d.changeOf(kind, obj, class, false)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.kept.exists(c.Key, c.Version)
		if !set.Has(c.Slot) {
			return nil
		}
		m.listed(pass, c.Slot, objectName{c.Key.Namespace, c.Key.Name})
		d.change(c)
		return nil
	})
	if err != nil || !served {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for s, gone := range m.end(pass, set) {
		for _, o := range gone {
			key := queue.Key{Kind: kind, Namespace: o.namespace, Name: o.name}
			d.change(queue.Change{Key: key, Slot: s, Gone: true})
		}
	}
	return nil
}

// changed is when the object was last changed, as far as its metadata show.
func changed(obj metav1.Object) time.Time {
	at := obj.GetCreationTimestamp().Time
	if deleted := obj.GetDeletionTimestamp(); deleted != nil && deleted.After(at) {
		at = deleted.Time
	}
	for _, field := range obj.GetManagedFields() {
		if field.Time != nil && field.Time.After(at) {
			at = field.Time.Time
		}
	}
	return at
}

// listAgain lists the objects of a kind again because events were missed. Only one list of a kind runs at a time.
func (d *Dispatcher) listAgain(kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, running := d.relists[kind]; running {
		d.relists[kind] = true
		return
	}
	d.relists[kind] = false
	ctx := d.life
	d.again.Go(func() {
		for again := true; again; {
			again = d.relist(ctx, kind)
		}
	})
}

// relist lists a kind until that succeeds, and returns whether another list must follow.
func (d *Dispatcher) relist(ctx context.Context, kind string) (again bool) {
	for delay := 200 * time.Millisecond; ; delay = min(2*delay, 30*time.Second) {
		d.mu.Lock()
		held := d.queue.Held()
		d.relists[kind] = false
		d.mu.Unlock()
		var errs []error
		for _, f := range d.children[kind] {
			errs = append(errs, f.Follows(ctx)) // later changes come as events
		}
		for _, f := range d.lists[kind] {
			errs = append(errs, d.list(ctx, kind, f, held))
		}
		d.step()
		err := errors.Join(errs...)
		if err == nil || ctx.Err() != nil {
			break
		}
		d.o.Logger.Error(err, "Cannot list missed objects; trying again", "kind", kind, "after", delay.String())
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if again = d.relists[kind] && ctx.Err() == nil; !again {
		delete(d.relists, kind)
	}
	return again
}

// Kinds implements controllers.Keeper.
func (d *Dispatcher) Kinds() []string {
	var out []string
	for _, k := range d.o.Kinds {
		out = append(out, k.Kind.String())
	}
	return out
}

// Address implements controllers.Keeper.
func (d *Dispatcher) Address() string { return d.o.Address }

// hold makes changes of the slots count. d.mu is held.
func (d *Dispatcher) hold(set slot.Set) {
	d.queue.Hold(d.now(), set)
	for _, m := range d.memories {
		m.hold(set)
	}
}

// Warm implements controllers.Keeper. From now on changes are recorded until the slots open. This matters for
// deletions, which the list after the move does not show. A kind that cannot be followed does not block the move.
func (d *Dispatcher) Warm(ctx context.Context, set slot.Set) error {
	d.mu.Lock()
	d.hold(set)
	d.mu.Unlock()
	soon, cancel := context.WithTimeout(ctx, excuse)
	defer cancel()
	for _, f := range d.feeds {
		if err := f.Follows(soon); err != nil {
			d.o.Logger.V(1).Info("Slots move although a kind cannot be followed", "cause", err.Error())
		}
	}
	return context.Cause(ctx)
}

// Load implements controllers.Keeper: it lists the slots' objects.
func (d *Dispatcher) Load(ctx context.Context, set slot.Set, handed bool, gone []table.Gone) error {
	d.mu.Lock()
	d.hold(set)
	for _, g := range gone {
		if set.Has(g.Slot) {
			key := queue.Key{Kind: g.Kind, Namespace: g.Namespace, Name: g.Name}
			d.change(queue.Change{Key: key, Slot: g.Slot, Gone: true})
		}
	}
	// These are handed out even if the slots were handed over, since their former owner may not have seen them.
	for key, g := range d.kept.take(set, d.parts.Late()) {
		d.change(queue.Change{Key: key, Slot: g.slot, UID: g.uid, Version: g.version, Gone: true})
	}
	for kind, feeds := range d.lists {
		for _, f := range feeds {
			for o, g := range d.memories[f].late(set, d.parts.Late()) {
				if handed {
					continue // its former owner has handed it out, or left it to this one
				}
				key := queue.Key{Kind: kind, Namespace: o.namespace, Name: o.name}
				d.change(queue.Change{Key: key, Slot: g.slot, UID: g.uid, Version: g.version, Gone: true})
			}
		}
	}
	d.mu.Unlock()
	var group sync.WaitGroup
	for kind, feeds := range d.lists {
		for _, f := range feeds {
			group.Go(func() { d.load(ctx, kind, f, set) })
		}
	}
	group.Wait()
	return context.Cause(ctx)
}

// excuse is how long a kind may fail before slots open without it.
const excuse = 5 * time.Second

// load lists the slots' objects of a feed. If that keeps failing, it continues in the background, since one kind must
// not block the others.
func (d *Dispatcher) load(ctx context.Context, kind string, f *feed.Feed, set slot.Set) {
	soon, cancel := context.WithTimeout(ctx, excuse)
	defer cancel()
	for delay := 100 * time.Millisecond; ; delay *= 2 {
		err := f.Follows(soon)
		for _, child := range d.children[kind] {
			err = errors.Join(err, child.Follows(soon))
		}
		if err == nil {
			err = d.list(ctx, kind, f, set)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		select {
		case <-soon.Done():
			d.o.Logger.Error(err, "Slots open although a kind cannot be listed: its keys are handed out when it can",
				"kind", kind, "slots", set.Len())
			d.listAgain(kind)
			return
		case <-time.After(delay):
		}
	}
}

// CatchUp implements controllers.Keeper.
func (d *Dispatcher) CatchUp(ctx context.Context, _ slot.Set) error {
	errs := make([]error, len(d.feeds))
	var group sync.WaitGroup
	for i, f := range d.feeds {
		if d.ofChildren[f] {
			continue // the next owner of the slots hands out their owners anyway
		}
		group.Go(func() { errs[i] = f.CatchUp(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// Open implements controllers.Keeper.
func (d *Dispatcher) Open(set slot.Set, epoch uint64) {
	d.mu.Lock()
	for _, s := range set.Slots() {
		delete(d.idle, s)
	}
	d.queue.Open(d.now(), set, epoch)
	d.mu.Unlock()
	d.step()
}

// Drain implements controllers.Keeper.
func (d *Dispatcher) Drain(set slot.Set, idle func(slot.Slot, []table.Gone)) {
	d.mu.Lock()
	for _, s := range set.Slots() {
		d.idle[s] = idle
	}
	d.queue.Drain(d.now(), set)
	d.mu.Unlock()
	d.step()
}

const (
	// keep is how long a deletion in a shut slot is remembered, and keepMax how many are.
	keep    = time.Hour
	keepMax = 100_000
)

// Shut implements controllers.Keeper. The slots may come back, for example after a lapse of the Lease. Lists do not
// show deletions then, so those that no worker has finished are kept for Load.
func (d *Dispatcher) Shut(set slot.Set) {
	d.mu.Lock()
	now := d.parts.Late()
	for _, c := range d.queue.Gone(set) {
		d.kept.add(c.Key, deletion{slot: c.Slot, uid: c.UID, version: c.Version, at: now})
	}
	for _, s := range set.Slots() {
		delete(d.idle, s)
	}
	d.queue.Shut(d.now(), set)
	for _, m := range d.memories {
		m.shut(set)
	}
	d.mu.Unlock()
	d.step()
}

// SetDeadline implements controllers.Keeper.
func (d *Dispatcher) SetDeadline(at time.Duration) {
	d.mu.Lock()
	d.clock.deadline = at
	d.now()
	d.mu.Unlock()
	d.step()
}

// Flights implements controllers.Keeper.
func (d *Dispatcher) Flights(older time.Duration) []gate.Flight {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	var out []gate.Flight
	for _, t := range d.queue.Takes(now) {
		if age := now - t.Begun; age >= older {
			key := gate.Key{Queue: "dispatcher/" + t.Key.Kind, Namespace: t.Key.Namespace, Name: t.Key.Name}
			out = append(out, gate.Flight{Slot: t.Slot, Key: key, For: age})
		}
	}
	return out
}

// Unfollowed returns the kinds whose changes, or whose children's changes, do not arrive at present, with the reason:
// the API server does not serve a kind, or refuses or fails to list or watch it.
func (d *Dispatcher) Unfollowed() map[string]error {
	out := map[string]error{}
	for _, feeds := range []map[string][]*feed.Feed{d.lists, d.children} {
		for kind, all := range feeds {
			for _, f := range all {
				if err := f.Err(); err != nil {
					out[kind] = err
				}
			}
		}
	}
	return out
}

// Remembered returns how many names of objects the dispatcher remembers, and how many bytes of memory they take.
func (d *Dispatcher) Remembered() (names, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.memories {
		count, size := m.size()
		names, bytes = names+count, bytes+size
	}
	return names, bytes
}
