package ctrlrt_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// readingOwnWrites returns the options with controller-runtime's EnableReadYourWritesConsistency. It skips the test with
// a version that does not have it.
func readingOwnWrites(t *testing.T, o ctrl.Options) ctrl.Options {
	t.Helper()
	given := &client.CacheOptions{Unstructured: true}
	field := reflect.ValueOf(given).Elem().FieldByName("EnableReadYourWritesConsistency")
	if !field.IsValid() {
		t.Skip("controller-runtime has the option since v0.25: make test-latest tests with that")
	}
	field.Set(reflect.ValueOf(ptr.To(true)))
	o.Client.Cache = given
	return o
}

// notWaiting is controller-runtime's DisableReadYourWritesConsistency.
type notWaiting struct{}

func (notWaiting) set(o any) {
	reflect.ValueOf(o).Elem().FieldByName("DisableReadYourWritesConsistency").SetBool(true)
}
func (n notWaiting) ApplyToGet(o *client.GetOptions)       { n.set(o) }
func (n notWaiting) ApplyToList(o *client.ListOptions)     { n.set(o) }
func (n notWaiting) ApplyToUpdate(o *client.UpdateOptions) { n.set(o) }

// writtenKind is a kind of which both sides write objects.
type writtenKind struct {
	name   string
	object func(namespace, name string) client.Object
	list   func() client.ObjectList
	apply  func(namespace, name, value string) runtime.ApplyConfiguration
}

// valueOf is the annotation by which states of an object are told apart.
const valueOf = "reads.rota.dev/value"

var writtenKinds = []writtenKind{
	{"primary", func(namespace, name string) client.Object { return replicaSet(namespace, name) },
		func() client.ObjectList { return &appsv1.ReplicaSetList{} },
		func(namespace, name, value string) runtime.ApplyConfiguration {
			return appsv1ac.ReplicaSet(name, namespace).WithAnnotations(map[string]string{valueOf: value})
		}},
	{"owned", func(namespace, name string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}, func() client.ObjectList { return &corev1.SecretList{} },
		func(namespace, name, value string) runtime.ApplyConfiguration {
			return corev1ac.Secret(name, namespace).WithAnnotations(map[string]string{valueOf: value})
		}},
	{"unsharded", func(namespace, name string) client.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: "None"}}
	}, func() client.ObjectList { return &corev1.ServiceList{} },
		func(namespace, name, value string) runtime.ApplyConfiguration {
			return corev1ac.Service(name, namespace).WithAnnotations(map[string]string{valueOf: value})
		}},
}

func replicaSet(namespace, name string) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "a"}
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}}}
}

// writingSide is where the steps are taken: with the client of a stock manager, or within a reconcile of a member.
type writingSide struct {
	client.Client
	t         *testing.T
	ctx       context.Context
	namespace string
	kind      writtenKind
	// owner is that of owned objects.
	owner   metav1.OwnerReference
	watches *watches
	said    []string
}

func (s *writingSide) object(name string) client.Object {
	obj := s.kind.object(s.namespace, name)
	if s.kind.name == "owned" {
		obj.SetOwnerReferences([]metav1.OwnerReference{s.owner})
	}
	return obj
}

func (s *writingSide) with(name, value string) client.Object {
	obj := s.object(name)
	obj.SetAnnotations(map[string]string{valueOf: value})
	return obj
}

// say notes what a step led to.
func (s *writingSide) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func said(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, context.DeadlineExceeded):
		return "too late"
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return string(apierrors.ReasonForError(err))
	default:
		return err.Error()
	}
}

// state is what a reader may see of an object.
func state(obj client.Object) string {
	out := obj.GetAnnotations()[valueOf]
	if obj.GetDeletionTimestamp() != nil {
		out += " deleted"
	}
	if rs, ok := obj.(*appsv1.ReplicaSet); ok {
		out += fmt.Sprintf(" status %d", rs.Status.ObservedGeneration)
	}
	return out
}

// see notes what reads say of an object.
func (s *writingSide) see(what, name string, opts ...client.GetOption) {
	obj := s.object(name)
	if err := s.Get(s.ctx, client.ObjectKeyFromObject(obj), obj, opts...); err != nil {
		s.say("%s: Get: %s", what, said(err))
	} else {
		s.say("%s: Get: %s", what, state(obj))
	}
}

func (s *writingSide) seeAll(what string, opts ...client.ListOption) {
	list := s.kind.list()
	if err := s.List(s.ctx, list, append(opts, client.InNamespace(s.namespace))...); err != nil {
		s.say("%s: List: %s", what, said(err))
		return
	}
	var names []string
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		obj := item.(client.Object)
		if !strings.Contains(obj.GetName(), "anchor") {
			name, _, _ := strings.Cut(obj.GetName(), "-")
			names = append(names, name+" "+state(obj))
		}
		return nil
	})
	slices.Sort(names)
	s.say("%s: List: %s", what, strings.Join(names, ", "))
}

func (s *writingSide) both(what, name string, err error) {
	s.say("%s: %s", what, said(err))
	s.see(what, name)
	s.seeAll(what)
}

// writeSteps are the same calls for every kind.
func (s *writingSide) writeSteps() {
	ctx := s.ctx
	obj := s.with("a", "1")
	s.both("create", "a", s.Create(ctx, obj))
	stale := obj.DeepCopyObject().(client.Object)
	obj.SetAnnotations(map[string]string{valueOf: "2"})
	s.both("update", "a", s.Update(ctx, obj))
	s.both("an update that changes nothing", "a", s.Update(ctx, obj))
	stale.SetAnnotations(map[string]string{valueOf: "stale"})
	s.both("an update of an old version", "a", s.Update(ctx, stale))
	s.both("patch", "a", s.Patch(ctx, s.object("a"), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+valueOf+`":"3"}}}`))))
	s.both("apply", "a", s.Apply(ctx, s.kind.apply(s.namespace, "a", "4"), client.ForceOwnership, client.FieldOwner("test")))
	dry := s.with("a", "dry")
	s.both("a dry run of an update", "a", s.Update(ctx, dry, client.DryRunAll))
	if rs, ok := s.object("a").(*appsv1.ReplicaSet); ok {
		s.both("patch of the status", "a", s.Status().Patch(ctx, rs, client.RawPatch(types.MergePatchType,
			[]byte(`{"status":{"observedGeneration":7}}`))))
		rs.Status.ObservedGeneration = 8
		s.both("update of the status", "a", s.Status().Update(ctx, rs))
	}
	generated := s.with("", "5")
	generated.SetGenerateName("generated-")
	s.say("create without a name: %s", said(s.Create(ctx, generated)))
	s.seeAll("create without a name")
	s.say("delete of it: %s", said(s.Delete(ctx, generated)))
	s.seeAll("delete of it")

	release := s.watches.hold()
	s.say("update: %s", said(s.Patch(ctx, s.object("a"), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+valueOf+`":"6"}}}`)))))
	s.see("a read that does not wait", "a", notWaiting{})
	s.seeAll("a read that does not wait", notWaiting{})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	s.ctx = short
	s.both("a read without the time", "a", nil)
	s.ctx = ctx
	release()
	s.both("a read with the time", "a", nil)
	unawaited := s.object("a")
	if err := s.Get(ctx, client.ObjectKeyFromObject(unawaited), unawaited); err != nil {
		s.say("%s", said(err))
	}
	unawaited.SetAnnotations(map[string]string{valueOf: "7"})
	release = s.watches.hold()
	s.both("a write for which reads do not wait", "a", s.Update(ctx, unawaited, notWaiting{}))
	release()
	s.both("patch after it", "a", s.Patch(ctx, s.object("a"), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["reads.rota.dev/f"],"annotations":{"`+valueOf+`":"8"}}}`))))

	s.both("delete with a finalizer", "a", s.Delete(ctx, s.object("a")))
	s.both("delete again", "a", s.Delete(ctx, s.object("a")))
	s.both("create of a name that is there", "a", s.Create(ctx, s.with("a", "9")))
	obj = s.with("b", "1")
	s.both("create of another", "b", s.Create(ctx, obj))
	s.both("delete of it", "b", s.Delete(ctx, obj))
	again := s.with("b", "2")
	s.say("create again: %s", said(s.Create(ctx, again)))
	s.say("and delete at once: %s", said(s.Delete(ctx, again)))
	s.both("both", "b", nil)
	s.both("and create again", "b", s.Create(ctx, s.with("b", "3")))
	s.both("delete of what is not there", "c", s.Delete(ctx, s.object("c")))
	s.say("delete of all: %v", s.DeleteAllOf(ctx, s.object(""), client.InNamespace(s.namespace)) != nil)
	s.both("nothing", "b", nil)
}

// namespaceSteps are calls for a Namespace. After its deletion it stays, without finalizers in its metadata and without a
// grace period, until somebody has emptied it; here nobody does.
func (s *writingSide) namespaceSteps() {
	ctx := s.ctx
	obj := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-other"}}
	patch := func(value string) client.Patch {
		return client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+valueOf+`":"`+value+`"}}}`))
	}
	see := func(what string, err error) {
		s.say("%s: %s", what, said(err))
		soon, cancel := context.WithTimeout(ctx, hang)
		defer cancel()
		found := &corev1.Namespace{}
		err = s.Get(soon, client.ObjectKeyFromObject(obj), found)
		s.say("%s: Get: %s: %s", what, said(err), state(found))
	}
	see("create", s.Create(ctx, obj))
	see("patch", s.Patch(ctx, obj, patch("1")))
	see("delete", s.Delete(ctx, obj))
	see("delete again", s.Delete(ctx, obj))
	see("patch after it", s.Patch(ctx, obj, patch("2")))
}

// readLag is how late watches are: as a rule more than an answer takes, so that a read that does not wait shows it.
const readLag = 200 * time.Millisecond

// With controller-runtime's EnableReadYourWritesConsistency the same calls, in a reconcile of a member and with the
// client of a stock manager, see the same, while watches lag.
func TestReadsOfOwnWritesAreThoseOfAStockManager(t *testing.T) {
	t.Parallel()
	readingOwnWrites(t, ctrl.Options{})
	watched := &watches{}
	stockNamespace := controlplane.Namespace(t)
	o := managerOptions()
	o.Cache.DefaultNamespaces = map[string]cache.Config{stockNamespace: {}}
	stock, err := ctrl.NewManager(watched.config(t), readingOwnWrites(t, o))
	require.NoError(t, err)
	_ = ending(t, stock.Start)
	member := newReadingMember(t, "m", controlplane.Namespace(t), 0, nil)
	eventually(t, time.Minute, settled(member.replica))
	steps := func(kind writtenKind) func(*writingSide) {
		if kind.object == nil {
			return (*writingSide).namespaceSteps
		}
		return (*writingSide).writeSteps
	}
	for _, kind := range append(slices.Clip(writtenKinds), writtenKind{name: "namespace"}) {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			want := &writingSide{Client: stock.GetClient(), t: t, ctx: t.Context(), namespace: stockNamespace, kind: kind,
				owner: anchorOf(t, stockNamespace), watches: watched}
			done := make(chan struct{})
			go func() {
				defer close(done)
				steps(kind)(want)
			}()
			got := &writingSide{Client: member.GetClient(), t: t, namespace: member.namespace, kind: kind,
				owner: member.owner, watches: member.watches}
			member.inside(t, func(ctx context.Context) {
				got.ctx = ctx
				steps(kind)(got)
			})
			<-done
			for n := range want.said {
				if want.said[n] != got.said[n] {
					t.Errorf("step %d: a member sees\n\t%s\na stock manager\n\t%s", n, got.said[n], want.said[n])
				}
			}
		})
	}
}
