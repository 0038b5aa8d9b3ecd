package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
)

// latest has lists show the present state. How old the first list of a stock informer is, which takes any version, is
// not compared.
type latest struct{ cache.ListerWatcherWithContext }

func (l latest) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
	return l.ListerWatcherWithContext.ListWithContext(ctx, o)
}

func (l latest) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

func (l latest) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// informerSide is an informer with its handlers: the stock one, or that of the member.
type informerSide struct {
	cache.SharedIndexInformer
	faults   *deliverytest.Faulty
	handlers [informerHandlers]*hearer
	added    [informerHandlers]cache.ResourceEventHandlerRegistration
	stop     context.CancelFunc
	runs     sync.WaitGroup
}

// informerWorld is an API server with both informers.
type informerWorld struct {
	informerSetting
	server        *deliverytest.Memory
	share         *delivery.Share
	stock, member *informerSide
	held, open    slot.Set
	started       bool
	stopped       bool
	missed        map[slot.Slot]map[types.NamespacedName]bool
}

var (
	informerKind  = schema.GroupKind{Kind: "ConfigMap"}
	informerOwner = schema.GroupKind{Group: "example.com", Kind: "Owner"}
)

func newInformerWorld(s informerSetting) (*informerWorld, error) {
	w := &informerWorld{
		informerSetting: s, server: deliverytest.NewMemory(), missed: map[slot.Slot]map[types.NamespacedName]bool{},
		share: delivery.New(delivery.Options{Slots: informerSlots, Mode: s.Mode}),
	}
	w.server.WatchList = true
	switch {
	case !s.Owned:
		if err := w.share.Shard(informerKind); err != nil {
			return nil, err
		}
	case !w.share.Own(informerKind, informerOwner, true):
		return nil, errors.New("the kind cannot be owned")
	case s.Orphans:
		if err := w.share.AddOrphans(informerKind); err != nil {
			return nil, err
		}
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	w.stock, w.member = &informerSide{}, &informerSide{}
	for _, side := range []*informerSide{w.stock, w.member} {
		side.faults = deliverytest.NewFaulty(w.server.ListWatch("", ""), s.WatchList)
	}
	w.stock.SharedIndexInformer = cache.NewSharedIndexInformer(latest{w.stock.faults}, &corev1.ConfigMap{}, s.Resync, indexers)
	w.member.SharedIndexInformer = w.share.NewInformer(informerKind, latest{w.member.faults}, &corev1.ConfigMap{}, s.Resync,
		indexers)
	for _, side := range []*informerSide{w.stock, w.member} {
		if err := side.SetWatchErrorHandler(quiet); err != nil {
			return nil, err
		}
		if !s.Transform {
			continue
		}
		if err := side.SetTransform(mark("transformed")); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// quiet is in place of client-go's handler, which logs.
func quiet(*cache.Reflector, error) {}

// mark returns a transform that changes the object that it is given. Those of client-go may be called again for what
// they returned.
func mark(name string) cache.TransformFunc {
	return func(obj any) (any, error) {
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return obj, nil
		}
		if cm.Annotations == nil {
			cm.Annotations = map[string]string{}
		}
		cm.Annotations[name] = "yes"
		return cm, nil
	}
}

// objectName returns the name of an object by its number.
func objectName(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: []string{"a", "b"}[n%2], Name: fmt.Sprint("object-", n)}
}

// owners returns owner m of an object: none, one of the kind that the share knows, or one of another kind. The labels
// are those of an object that has it.
func (w *informerWorld) owners(name types.NamespacedName, m int) ([]metav1.OwnerReference, map[string]string) {
	controller := true
	ref := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Owner", Name: fmt.Sprint("owner-", m), UID: "1",
		Controller: &controller}
	label := sharding.OwnerLabel(slot.KeyName, informerKind)
	switch {
	case !w.Owned:
		return nil, map[string]string{sharding.HashLabel(slot.KeyName, informerKind): sharding.LabelValue(
			slot.KeyName.Hash(name.Namespace, name.Name, ""))}
	case m == 0:
		return nil, map[string]string{label: ""}
	case m == 1:
		ref.Kind = "Another"
		return []metav1.OwnerReference{ref}, map[string]string{label: ""}
	}
	return []metav1.OwnerReference{ref}, map[string]string{label: sharding.LabelValue(
		slot.KeyName.Hash(name.Namespace, ref.Name, ""))}
}

// place returns an object's slot, and what is reconciled because of it. ok is false if no member has the object, and
// orphan is true if all have it that have any slot.
func (w *informerWorld) place(obj *corev1.ConfigMap) (n slot.Slot, about types.NamespacedName, orphan, ok bool) {
	about = types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	if w.Owned {
		ref := metav1.GetControllerOf(obj)
		if ref == nil {
			return 0, types.NamespacedName{}, true, w.Orphans
		}
		if ref.Kind != informerOwner.Kind {
			return 0, types.NamespacedName{}, false, false
		}
		about.Name = ref.Name
	}
	return w.share.Slot(about.Namespace, about.Name, ""), about, false, true
}

// in reports whether an object is in one of the slots.
func (w *informerWorld) in(set slot.Set, obj *corev1.ConfigMap) bool {
	n, _, orphan, ok := w.place(obj)
	if orphan {
		return ok && !set.Empty()
	}
	return ok && set.Has(n)
}

// same reports whether two objects are in one slot.
func (w *informerWorld) same(a, b *corev1.ConfigMap) bool {
	aSlot, _, aOrphan, aOK := w.place(a)
	bSlot, _, bOrphan, bOK := w.place(b)
	return aSlot == bSlot && aOrphan == bOrphan && aOK == bOK
}

// expected is what a member's handler hears in place of what a stock one does. listed says that a list told of the
// change, and not the watch.
func (w *informerWorld) expected(e informerEvent, listed bool) []informerEvent {
	if e.what != "update" || w.same(e.old, e.obj) {
		if !w.in(w.open, e.obj) {
			return nil
		}
		return []informerEvent{e}
	}
	// An object that got another owner. Its former place is known to the member only if it has it.
	before, after := w.in(w.open, e.old), w.in(w.open, e.obj)
	switch {
	case !w.in(w.held, e.old):
		if !after {
			return nil
		}
		return []informerEvent{{what: "add", obj: e.obj}}
	case w.Orphans && !(listed && !w.in(w.held, e.obj)): // a list of the share does not show where it went
		if !before && !after {
			return nil
		}
		return []informerEvent{e}
	}
	var out []informerEvent
	if before {
		out = append(out, informerEvent{what: "delete", obj: e.old, unknown: true})
	}
	if after {
		out = append(out, informerEvent{what: "add", obj: e.obj})
	}
	return out
}

// miss notes what the handlers of a member do not hear, and that Open tells therefore.
func (w *informerWorld) miss(e informerEvent) {
	gone := e.obj
	if e.what == "update" && !w.same(e.old, e.obj) {
		gone = e.old
	} else if e.what != "delete" {
		return
	}
	n, about, orphan, ok := w.place(gone)
	if !ok || orphan || !w.held.Has(n) || w.open.Has(n) {
		return
	}
	if w.missed[n] == nil {
		w.missed[n] = map[types.NamespacedName]bool{}
	}
	w.missed[n][about] = true
}

// change changes an object.
func (w *informerWorld) change(s informerStep) {
	name := objectName(s.N)
	ctx := context.Background()
	owners, labels := w.owners(name, s.M)
	create := func() {
		if w.server.Get(name) == nil {
			w.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name,
				Labels: labels, OwnerReferences: owners}})
		}
	}
	switch s.Do {
	case "create":
		create()
	case "update":
		w.server.Update(ctx, name)
	case "adopt":
		w.server.Adopt(ctx, name, owners, labels)
	case "delete":
		w.server.Delete(ctx, name)
	case "delete and create":
		w.server.Delete(ctx, name)
		create()
	}
}

// both makes a call of both informers. The answers are the same.
func (w *informerWorld) both(call func(*informerSide) error) error {
	want, got := call(w.stock), call(w.member)
	if (want == nil) != (got == nil) {
		return fmt.Errorf("stock: %s; member: %s", fmt.Sprint(want), fmt.Sprint(got))
	}
	return nil
}

func (i *informerSide) start() error {
	ctx, stop := context.WithCancel(context.Background())
	if i.stop == nil {
		i.stop = stop
	}
	i.runs.Go(func() {
		defer stop()
		i.RunWithContext(ctx)
	})
	return nil
}

func (i *informerSide) addHandler(n int, resync time.Duration) error {
	h := &hearer{}
	added, err := i.AddEventHandlerWithResyncPeriod(h, resync)
	if err == nil && i.added[n] == nil {
		i.handlers[n], i.added[n] = h, added
		return nil
	}
	if err != nil {
		return err
	}
	return i.RemoveEventHandler(added)
}

func (i *informerSide) removeHandler(n int) error {
	if i.added[n] == nil {
		return nil
	}
	return i.RemoveEventHandler(i.added[n])
}

// warm has the member hold slots, as a handover or a takeover does.
func (w *informerWorld) warm(s informerStep) error {
	set, ctx := s.slots(), context.Background()
	cause := []table.Cause{table.CauseAssigned, table.CauseExpelled, table.CauseHanded}[s.N%3]
	var versions table.Versions
	switch {
	case cause != table.CauseHanded:
		w.share.HoldAnew(set)
	case s.M == 0:
		versions = table.Versions{informerKind.String(): table.List}
		w.share.Hold(set)
	default:
		_, version, err := w.server.List(ctx)
		if err != nil {
			return err
		}
		versions = table.Versions{informerKind.String(): version}
		w.share.Hold(set)
	}
	if err := w.share.Warm(ctx, set); err != nil {
		return err
	}
	return w.share.Load(ctx, set, cause, versions, false)
}

// opens opens slots, and compares what Open tells with what handlers have not heard.
func (w *informerWorld) opens(set slot.Set) error {
	want := map[types.NamespacedName]bool{}
	for _, obj := range w.stock.GetStore().List() {
		n, about, orphan, ok := w.place(obj.(*corev1.ConfigMap))
		if ok && !orphan && set.Has(n) && w.held.Has(n) {
			want[about] = true
		}
	}
	for _, n := range set.Slots() {
		maps.Copy(want, w.missed[n])
		delete(w.missed, n)
	}
	w.open = w.open.Union(set.Intersect(w.held))
	got := map[types.NamespacedName]bool{}
	kind := informerKind
	if w.Owned {
		kind = informerOwner
	}
	for _, name := range w.share.Open(set)[kind].All() {
		if got[name] {
			return fmt.Errorf("open tells %v twice", name)
		}
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" && w.started && !w.stopped {
		return fmt.Errorf("open (-what handlers did not hear +told):\n%s", diff)
	}
	return nil
}

// step makes a step. It returns an error if an answer differs.
func (w *informerWorld) step(s informerStep) error {
	set := s.slots()
	switch s.Do {
	case "start":
		if w.started {
			return nil
		}
		w.started = true
		return w.both((*informerSide).start)
	case "stop":
		if w.started && !w.stopped {
			w.stopped = true
			w.stock.stop()
			w.member.stop()
		}
	case "warm", "own":
		if w.stopped {
			return nil
		}
		if err := w.warm(s); err != nil {
			return err
		}
		w.held = w.held.Union(set)
		if s.Do == "own" {
			time.Sleep(settles)
			synctest.Wait()
			return w.opens(set)
		}
	case "open":
		return w.opens(set)
	case "shut":
		w.share.Shut(set)
		w.open = w.open.Minus(set)
	case "release":
		w.share.Release(set)
		w.open, w.held = w.open.Minus(set), w.held.Minus(set)
		for _, n := range set.Slots() {
			delete(w.missed, n)
		}
	case "add handler":
		n := s.N % informerHandlers
		return w.both(func(i *informerSide) error { return i.addHandler(n, s.For) })
	case "remove handler":
		return w.both(func(i *informerSide) error { return i.removeHandler(s.N % informerHandlers) })
	case "add indexer":
		return w.both(func(i *informerSide) error { return i.AddIndexers(cache.Indexers{"by-version": byVersion}) })
	case "set transform":
		return w.both(func(i *informerSide) error { return i.SetTransform(mark("late")) })
	case "set error handler":
		return w.both(func(i *informerSide) error { return i.SetWatchErrorHandler(quiet) })
	case "pass":
		time.Sleep(10 * s.For)
	case "cut", "expire", "lag", "outage", "refuse":
		w.fault(s)
		time.Sleep(faultSettles)
	default:
		w.change(s)
	}
	return nil
}

func byVersion(obj any) ([]string, error) {
	return []string{obj.(*corev1.ConfigMap).Data["version"]}, nil
}

// fault makes the connection of both informers fail, while objects change.
func (w *informerWorld) fault(s informerStep) {
	changes := func() {
		for _, m := range s.Meanwhile {
			w.change(m)
		}
	}
	each := func(do func(*deliverytest.Faulty)) { do(w.stock.faults); do(w.member.faults) }
	switch s.Do {
	case "cut":
		each((*deliverytest.Faulty).Cut)
	case "expire":
		each((*deliverytest.Faulty).Expire)
	case "lag":
		var resume []func()
		each(func(f *deliverytest.Faulty) { resume = append(resume, f.Pause()) })
		changes()
		synctest.Wait()
		for _, f := range resume {
			f()
		}
	case "outage":
		each(func(f *deliverytest.Faulty) { f.Refuse(syscall.ECONNREFUSED) })
		synctest.Wait()
		changes()
		w.server.Compact()
		each(func(f *deliverytest.Faulty) { f.Refuse(nil) })
	case "refuse":
		each(func(f *deliverytest.Faulty) { f.Refuse(syscall.ECONNREFUSED) })
		time.Sleep(faultSettles)
		changes()
		each(func(f *deliverytest.Faulty) { f.Refuse(nil) })
	}
}
