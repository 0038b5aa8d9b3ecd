package feed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// steps is an informer of a kind whose objects are owned, of which the test is all that runs except for the driver: the
// upstream watch, the pump, the reflector and the store.
type steps struct {
	t     *testing.T
	share *Common
	inf   *Informer
	pump  *pump
	// gone are the owners of the children that the store has lost.
	gone []string
	// lists gets what the driver's lists return.
	lists chan *corev1.ConfigMapList
}

// newSteps returns one that has listed the slots of a set, and found a list's objects.
func newSteps(t *testing.T, o sharding.Options, set slot.Set, first *corev1.ConfigMapList) *steps {
	t.Helper()
	st := &steps{t: t, lists: make(chan *corev1.ConfigMapList, 1)}
	st.lists <- first
	o.Slots = 8
	share := newCommon(o)
	st.share = share
	owner, kind := schema.GroupKind{Group: "example.com", Kind: "Site"}, schema.GroupKind{Kind: "ConfigMap"}
	if !share.Own(kind, owner, true) {
		t.Fatal("not owned")
	}
	st.inf = NewInformer(share, kind, &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return <-st.lists, nil },
	}, &corev1.ConfigMap{}, 0, nil)
	share.Add(st.inf)
	// As RunWithContext does.
	s := st.inf.Source
	st.inf.Running, st.inf.Sharded, st.inf.Role = true, true, share.Use(kind, false)
	s.deliver(share.Scope(kind, st.inf.Role))
	st.inf.recorder = &handler{informer: st.inf}
	s.on.Store(true)
	require.NoError(t, st.inf.AddIndexers(cache.Indexers{slotIndex: st.inf.indexSlot}))
	share.hold(set)
	list, err := s.ListWithContext(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, obj := range list.(*corev1.ConfigMapList).Items {
		require.NoError(t, st.inf.GetIndexer().Add(&obj))
	}
	st.pump = newPump(t.Context(), s, metav1.ListOptions{})
	st.pump.out, st.pump.asked = make(chan watch.Event, 100), sharding.Everything
	s.goesOn(st.pump)
	return st
}

// drive starts the driver.
func (st *steps) drive() {
	ctx, cancel := context.WithCancel(st.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&driver{st.inf.Source}).drive(ctx)
	}()
	st.t.Cleanup(func() {
		cancel()
		close(st.inf.Source.done)
		<-done
	})
}

// job waits for the driver's next job and returns what runs it.
func (st *steps) job() (run func()) {
	j := <-st.inf.Source.jobs
	return func() { j.done <- j.run(st.pump) }
}

// apply has the store see the next n events.
func (st *steps) apply(n int) {
	st.t.Helper()
	for range n {
		st.see(<-st.pump.out)
	}
}

func (st *steps) see(e watch.Event) {
	st.t.Helper()
	var err error
	switch e.Type { //nolint:exhaustive // there are no others
	case watch.Added, watch.Modified:
		err = st.inf.GetIndexer().Update(e.Object)
	case watch.Deleted:
		if owner := metav1.GetControllerOf(e.Object.(*corev1.ConfigMap)); owner != nil {
			st.gone = append(st.gone, owner.Name)
		}
		st.inf.recorder.OnDelete(e.Object)
		err = st.inf.GetIndexer().Delete(e.Object)
	}
	if err != nil {
		st.t.Fatal(err)
	}
}

// during runs a job that may wait for the store, which sees what is sent meanwhile.
func (st *steps) during(run func()) {
	st.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	for {
		select {
		case <-time.After(20 * time.Millisecond): // it waits
			st.apply(len(st.pump.out))
		case <-done:
			return
		}
	}
}

// barrier runs the driver's next job, which is one, and has the store see it.
func (st *steps) barrier() {
	st.t.Helper()
	st.job()()
	st.apply(1)
}

// receive has the pump receive an event.
func (st *steps) receive(what watch.EventType, obj *corev1.ConfigMap) {
	st.t.Helper()
	if !st.pump.received(watch.Event{Type: what, Object: obj.DeepCopy()}, true) {
		st.t.Fatal("the pump ended")
	}
}

// confirm has look-ups at a version show that everything in doubt is gone.
func (st *steps) confirm(version string) {
	st.t.Helper()
	due, _ := st.inf.Source.core.Due(time.Hour)
	for _, d := range due {
		if !st.pump.resolve(d, nil, version) {
			st.t.Fatal("the pump ended")
		}
	}
}

// sends compares what the pump has sent with what is wanted.
func (st *steps) sends(want ...string) {
	st.t.Helper()
	var got []string
	for len(st.pump.out) > 0 {
		e := <-st.pump.out
		got = append(got, fmt.Sprintf("%s %s", e.Type, VersionOf(e.Object)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		st.t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// siteIn is the name of an owner in a slot.
func siteIn(share *Common, n slot.Slot) string {
	name := "s"
	for share.Slot("a", name, "") != n {
		name += "s"
	}
	return name
}

// childOf is a state of a child.
func childOf(owner, name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: name, ResourceVersion: version,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Site", Name: owner,
			Controller: ptr.To(true)}},
	}}
}

func children(version string, items ...*corev1.ConfigMap) *corev1.ConfigMapList {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, obj := range items {
		list.Items = append(list.Items, *obj)
	}
	return list
}

// has compares the store's children's versions.
func (st *steps) has(want map[string]string) {
	st.t.Helper()
	have := map[string]string{}
	for _, obj := range st.inf.GetIndexer().List() {
		cm := obj.(*corev1.ConfigMap)
		have[cm.Name] = cm.ResourceVersion
	}
	if diff := cmp.Diff(want, have); diff != "" {
		st.t.Errorf("store (-want +got):\n%s", diff)
	}
}

// A child goes from a slot that is listed again to one that is gained with it. When the list, which shows it there, is
// compared with the store, that has seen the child's new state, but not yet that it left its slot.
func TestListComparedWithAStoreBehindTheStream(t *testing.T) {
	share := newCommon(sharding.Options{Slots: 8})
	before, after := childOf(siteIn(share, 6), "c", "101"), childOf(siteIn(share, 1), "c", "102")
	st := newSteps(t, sharding.Options{}, slot.SetOf(slot.Range{First: 6, Last: 6}), children("101", before))
	s := st.inf.Source
	st.share.hold(slot.SetOf(slot.Range{First: 1, Last: 1}))
	s.Refresh(slot.SetOf(slot.Range{First: 6, Last: 6}))
	st.drive()
	st.job()() // widens the watch
	st.barrier()
	st.receive(watch.Modified, after)
	st.lists <- children("102", after)
	run := st.job()
	st.apply(1)
	run()
	st.apply(len(st.pump.out))
	st.barrier()
	st.has(map[string]string{"c": "102"})
}

// Two slots are listed again. While the list, which is ahead of the stream, waits for its turn, the stream has a child
// go from one slot to the other. The list does not show the child, since it went on from there: so it goes.
func TestChildComesToASlotThatIsListedAgain(t *testing.T) {
	share := newCommon(sharding.Options{Slots: 8})
	both := slot.SetOf(slot.Range{First: 1, Last: 1}, slot.Range{First: 6, Last: 6})
	st := newSteps(t, sharding.Options{}, both, children("101", childOf(siteIn(share, 6), "c", "101")))
	st.inf.Source.Refresh(both)
	st.drive()
	st.job()() // widens the watch
	st.barrier()
	st.lists <- children("105")
	run := st.job()
	st.receive(watch.Modified, childOf(siteIn(share, 1), "c", "102"))
	st.during(run)
	st.receive(watch.Modified, childOf(siteIn(share, 3), "c", "103"))
	st.apply(len(st.pump.out))
	st.has(map[string]string{})
	if diff := cmp.Diff([]string{siteIn(share, 1)}, st.gone); diff != "" {
		t.Errorf("owners that lost a child (-want +got):\n%s", diff)
	}
}

// A list does not show a child, and a look-up shows a namesake of it, whose label is wrong. Until the list is used, the
// stream has told of the namesake, too. It exists and stays in the store.
func TestNamesakeOfAVerifiedChild(t *testing.T) {
	o := sharding.Options{Mode: sharding.SlotLabel, Slots: 8}
	share := newCommon(o)
	kind := schema.GroupKind{Kind: "ConfigMap"}
	state := func(uid types.UID, version, label string) *corev1.ConfigMap {
		obj := childOf(siteIn(share, 6), "c", version)
		obj.UID, obj.Labels = uid, map[string]string{sharding.OwnerLabel(slot.KeyName, kind): label}
		return obj
	}
	right := sharding.LabelValue(slot.KeyName.Hash("a", siteIn(share, 6), ""))
	six := slot.SetOf(slot.Range{First: 6, Last: 6})
	st := newSteps(t, o, six, children("101", state("first", "101", right)))
	st.inf.Source.Refresh(six)
	st.drive()
	st.job()() // widens the watch
	st.barrier()
	st.lists <- children("105")
	st.during(st.job()) // has the child looked up
	st.lists <- children("105", state("second", "104", "4095"))
	run := st.job()
	st.receive(watch.Deleted, state("first", "102", right))
	st.receive(watch.Added, state("second", "103", right))
	st.during(run)
	st.lists <- children("105", state("second", "104", "4095"))
	st.during(st.job())
	st.apply(len(st.pump.out))
	st.has(map[string]string{"c": "104"})
}

// gaining returns steps that have slot 6 with a child at version 101, and are listing slot 1. With it come states of
// that child, or of one of the same name: their labels are right.
func gaining(t *testing.T,
	kind sharding.Mode,
) (st *steps, state func(n slot.Slot, uid types.UID, version string) *corev1.ConfigMap) {
	t.Helper()
	o := sharding.Options{Mode: kind, Slots: 8}
	share := newCommon(o)
	state = func(n slot.Slot, uid types.UID, version string) *corev1.ConfigMap {
		obj := childOf(siteIn(share, n), "c", version)
		obj.UID = uid
		obj.Labels = map[string]string{sharding.OwnerLabel(slot.KeyName,
			schema.GroupKind{Kind: "ConfigMap"}): sharding.LabelValue(slot.KeyName.Hash("a", siteIn(share, n), ""))}
		return obj
	}
	st = newSteps(t, o, slot.SetOf(slot.Range{First: 6, Last: 6}), children("101", state(6, "first", "101")))
	st.share.hold(slot.SetOf(slot.Range{First: 1, Last: 1}))
	st.drive()
	st.barrier() // settles slot 6
	st.job()()   // widens the watch
	st.barrier()
	return st, state
}

// A child is deleted, which waits for its look-up when a namesake takes its place in the store, on its way to the slot
// that is listed. What the stream had told of the former one before is not to be told again after the list.
func TestNamesakeDuringAList(t *testing.T) {
	st, state := gaining(t, sharding.SlotLabel)
	st.receive(watch.Modified, state(6, "first", "102"))
	st.receive(watch.Deleted, state(6, "first", "103"))
	st.receive(watch.Added, state(1, "second", "104"))
	st.sends("MODIFIED 102", "MODIFIED 104", "DELETED 104")
	st.lists <- children("101")
	st.job()()
	st.sends("ADDED 104")
}

// A list is behind the stream: it shows a child in the slot gained whose namesake has come to a slot held, and was
// deleted. Neither of them comes back, and neither is told of once more.
func TestListShowsAFormerNamesake(t *testing.T) {
	st, state := gaining(t, sharding.SlotLabel)
	st.receive(watch.Deleted, state(6, "first", "102"))
	st.confirm("102")
	st.receive(watch.Added, state(1, "second", "103"))
	st.receive(watch.Deleted, state(1, "second", "104"))
	st.receive(watch.Added, state(6, "third", "105"))
	st.receive(watch.Deleted, state(6, "third", "106"))
	st.confirm("106")
	st.receive(watch.Added, state(1, "fourth", "107"))
	st.sends("DELETED 102", "ADDED 105", "DELETED 106")
	st.lists <- children("103", state(1, "second", "103"))
	st.job()()
	st.sends("ADDED 107")
}

// A list ahead of the stream shows a child in the slot gained, and the next one does not any more. The stream, which
// tells later what it was before, does not bring it back.
func TestListsAheadOfTheStream(t *testing.T) {
	st, state := gaining(t, sharding.Filter)
	st.lists <- children("103", state(1, "first", "103"))
	st.job()()
	st.apply(len(st.pump.out))
	st.barrier()
	st.has(map[string]string{"c": "103"})
	st.inf.Source.Refresh(slot.SetOf(slot.Range{First: 1, Last: 1}))
	st.job()() // widens the watch
	st.barrier()
	st.lists <- children("105")
	st.during(st.job())
	st.apply(len(st.pump.out))
	st.has(map[string]string{})
	st.receive(watch.Modified, state(6, "first", "102"))
	st.receive(watch.Modified, state(1, "first", "103"))
	st.receive(watch.Modified, state(3, "first", "104"))
	st.sends()
}

// A look-up shows that a child is gone of which the stream tells that it left its labels, came back in the slot that is
// listed, and was deleted. When the stream has passed the look-up, neither the list nor what is told again after it is
// to bring the child back.
func TestLookUpDuringAList(t *testing.T) {
	for _, version := range []string{"101", "103"} {
		t.Run("ListAt"+version, func(t *testing.T) {
			st, state := gaining(t, sharding.SlotLabel)
			st.receive(watch.Deleted, state(6, "first", "102"))
			st.confirm("105")
			st.receive(watch.Added, state(1, "first", "103"))
			st.receive(watch.Deleted, state(1, "first", "104"))
			st.receive(watch.Bookmark, state(1, "", "105"))
			st.sends("DELETED 102", "BOOKMARK 105")
			list := children(version)
			if version == "103" {
				list = children(version, state(1, "first", "103"))
			}
			st.lists <- list
			st.job()()
			st.sends()
		})
	}
}
