package ctrlrt

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/require"
)

// server stands for the live client. As the real one does, it sends the text of a selector, refuses what is no name,
// answers typed objects without their kind, and leaves the caller's when it finds nothing.
type server struct {
	requests []string
	// cancel is called in the middle of the first request.
	cancel context.CancelFunc
}

func (s *server) asked(ctx context.Context, what string) error {
	s.requests = append(s.requests, what)
	if s.cancel != nil {
		s.cancel()
	}
	return ctx.Err()
}

func (s *server) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if err := s.asked(ctx, "get "+key.String()); err != nil {
		return err
	}
	if strings.HasPrefix(key.Name, "none") {
		obj.SetLabels(map[string]string{"half": "decoded"})
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	if _, is := obj.(*corev1.ConfigMap); is {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	obj.SetName(key.Name)
	return nil
}

func (s *server) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	by := o.AsListOptions()
	if err := s.asked(ctx, "list "+o.Namespace+" "+by.LabelSelector+" "+by.FieldSelector); err != nil {
		return err
	}
	switch list := list.(type) {
	case *corev1.ConfigMapList:
		list.Items = make([]corev1.ConfigMap, 2)
	case *unstructured.UnstructuredList:
		list.Items = []unstructured.Unstructured{{}}
	case *metav1.PartialObjectMetadataList:
		list.Items = make([]metav1.PartialObjectMetadata, 1)
	case *schedulingv1.PriorityClassList:
		list.Items = make([]schedulingv1.PriorityClass, 1)
	}
	return nil
}

var priorityClassGVK = schedulingv1.SchemeGroupVersion.WithKind("PriorityClass")

func answering(o cache.Options) (*uncached, *server) {
	s := &server{}
	return &uncached{Reader: s, scheme: scheme.Scheme, mapper: knownKinds(), options: o}, s
}

// The text of a selector that selects nothing is "", which the API server takes for everything.
func TestAListOfNothingIsEmpty(t *testing.T) {
	unset, err := metav1.LabelSelectorAsSelector(nil)
	require.NoError(t, err)
	app := labels.SelectorFromSet(labels.Set{"app": "mine"})
	name := fields.OneTermEqualSelector("metadata.name", "a")
	nothing := cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: labels.Nothing()}}}
	long := strings.Repeat("a", 64)
	for _, test := range []struct {
		name  string
		cache cache.Options
		opts  []client.ListOption
		// want is the request; empty: there is none, and no object is found.
		want string
	}{
		{name: "no selector", want: "list   "},
		{name: "labels", opts: []client.ListOption{client.MatchingLabels{"app": "x"}}, want: "list  app=x "},
		{name: "everything", opts: []client.ListOption{client.MatchingLabelsSelector{Selector: labels.Everything()}},
			want: "list   "},
		{name: "a selector that is not set", opts: []client.ListOption{client.MatchingLabelsSelector{Selector: unset}}},
		{name: "nothing and labels", opts: []client.ListOption{client.MatchingLabelsSelector{Selector: labels.Nothing()},
			client.MatchingLabels{"app": "x"}}},
		{name: "nothing in a selecting cache", cache: cache.Options{DefaultLabelSelector: app},
			opts: []client.ListOption{client.MatchingLabelsSelector{Selector: labels.Nothing()}}},
		{name: "labels in a selecting cache", cache: cache.Options{DefaultLabelSelector: app},
			opts: []client.ListOption{client.MatchingLabels{"x": "y"}}, want: "list  app=mine,x=y "},
		// A cache sends its own selector, so that it holds everything.
		{name: "a cache of nothing", cache: nothing, want: "list   "},
		{name: "labels in a cache of nothing", cache: nothing, opts: []client.ListOption{client.MatchingLabels{"a": "b"}},
			want: "list  a=b "},
		{name: "nothing in several namespaces",
			cache: cache.Options{DefaultNamespaces: map[string]cache.Config{"a": {}, "b": {}}},
			opts:  []client.ListOption{client.MatchingLabelsSelector{Selector: labels.Nothing()}}},
		{name: "one namespace of nothing",
			cache: cache.Options{DefaultNamespaces: map[string]cache.Config{"a": {LabelSelector: labels.Nothing()}, "b": {}}},
			want:  "list a  ; list b  "},
		{name: "fields", opts: []client.ListOption{client.MatchingFieldsSelector{Selector: name}},
			want: "list   metadata.name=a"},
		{name: "no fields", opts: []client.ListOption{client.MatchingFieldsSelector{Selector: fields.Nothing()}}},
		{name: "no fields and one", opts: []client.ListOption{client.MatchingFieldsSelector{
			Selector: fields.AndSelectors(name, fields.Nothing())}}},
		{name: "a cache of no fields", cache: cache.Options{DefaultFieldSelector: fields.Nothing()},
			opts: []client.ListOption{client.MatchingFieldsSelector{Selector: name}}, want: "list   metadata.name=a"},
		{name: "a cache of no fields and one", cache: cache.Options{DefaultFieldSelector: fields.AndSelectors(name,
			fields.Nothing())}, want: "list   metadata.name=a"},
		{name: "all fields", opts: []client.ListOption{client.MatchingFieldsSelector{Selector: fields.Everything()}},
			want: "list   "},
		{name: "a value that is too long for a label", opts: []client.ListOption{client.MatchingLabels{"app": long}}},
		{name: "a value with a slash", opts: []client.ListOption{client.MatchingLabels{"app": "a/b"}}},
		{name: "a key that is none", opts: []client.ListOption{client.MatchingLabels{"a/b/c": "x"}}},
		{name: "a namespace that is none", opts: []client.ListOption{client.InNamespace("a/b")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			u, s := answering(test.cache)
			var list corev1.ConfigMapList
			require.NoError(t, u.List(t.Context(), &list, test.opts...))
			if got := strings.Join(s.requests, "; "); got != test.want || (len(list.Items) > 0) != (test.want != "") {
				t.Errorf("requests %q, %d objects; want %q", got, len(list.Items), test.want)
			}
		})
	}
	u, s := answering(cache.Options{})
	var list schedulingv1.PriorityClassList
	if err := u.List(t.Context(), &list, client.InNamespace("a")); err != nil || len(list.Items)+len(s.requests) > 0 {
		t.Errorf("a kind without namespaces in one: %d objects, requests %q, error %v; want none", len(list.Items), s.requests,
			err)
	}
}

// Nothing has such a name, which a cache says without asking. Some references are empty at first.
func TestWhatCannotBeIsNotFound(t *testing.T) {
	for _, key := range []client.ObjectKey{{Namespace: "ns"}, {Namespace: "ns", Name: "a/b"}, {Namespace: "ns", Name: ".."},
		{Namespace: "ns", Name: "50%"}, {Name: "a"}, {Namespace: "n/s", Name: "a"}} {
		u, s := answering(cache.Options{})
		obj := &corev1.ConfigMap{Data: map[string]string{"of": "the caller"}}
		if err := u.Get(t.Context(), key, obj); !apierrors.IsNotFound(err) || len(s.requests) > 0 || obj.Data == nil {
			t.Errorf("Get of %q: %v, requests %q, data %v; want NotFound without a request", key, err, s.requests, obj.Data)
		}
	}
	for _, namespace := range []string{"", "ns"} {
		u, s := answering(cache.Options{})
		err := u.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, &schedulingv1.PriorityClass{})
		if err != nil || len(s.requests) != 1 {
			t.Errorf("Get of a cluster-scoped object: %v, requests %q; want one", err, s.requests)
		}
	}
}

// controllerutil.CreateOrUpdate creates what Get left.
func TestAnObjectThatIsNotFoundStaysTheCallers(t *testing.T) {
	u, _ := answering(cache.Options{})
	obj := &corev1.ConfigMap{Data: map[string]string{"of": "the caller"}}
	err := u.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "none"}, obj)
	if !apierrors.IsNotFound(err) || obj.Data == nil || obj.Labels != nil {
		t.Errorf("%v, data %v, labels %v; want NotFound, and the object as it was", err, obj.Data, obj.Labels)
	}
}

// A cache sets kind and version in what it gives out, unless that is not a copy.
func TestAnswersHaveTheirKind(t *testing.T) {
	key, ctx := client.ObjectKey{Namespace: "ns", Name: "a"}, t.Context()
	ask := func(t *testing.T, o cache.Options, obj client.Object, list client.ObjectList, want schema.GroupVersionKind) {
		t.Helper()
		u, _ := answering(o)
		if err := u.Get(ctx, key, obj); err != nil || obj.GetObjectKind().GroupVersionKind() != want {
			t.Errorf("Get into %T: kind %v, error %v; want %v", obj, obj.GetObjectKind().GroupVersionKind(), err, want)
		}
		require.NoError(t, u.List(ctx, list))
		items, err := meta.ExtractList(list)
		if err != nil || len(items) == 0 {
			t.Fatalf("%d items, error %v", len(items), err)
		}
		for _, item := range items {
			if got := item.GetObjectKind().GroupVersionKind(); got != want {
				t.Errorf("List into %T: kind %v, want %v", list, got, want)
			}
		}
	}
	ask(t, cache.Options{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, configMaps)
	one, many := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
	one.SetGroupVersionKind(configMaps)
	many.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	ask(t, cache.Options{}, one, many, configMaps)
	about, abouts := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
	about.SetGroupVersionKind(configMaps)
	abouts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	ask(t, cache.Options{}, about, abouts, configMaps)
	seen := false
	ask(t, cache.Options{DefaultTransform: func(obj any) (any, error) {
		seen = seen || obj.(*corev1.ConfigMap).Kind != ""
		return obj, nil
	}}, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, configMaps)
	if seen {
		t.Error("a transform was given an object with a kind, which those of a cache do not have")
	}
	ask(t, cache.Options{DefaultUnsafeDisableDeepCopy: ptr.To(true)}, &corev1.ConfigMap{}, &corev1.ConfigMapList{},
		schema.GroupVersionKind{})
}

// A cache does not look at the context: what cleans up after a timeout reads with one that has ended.
func TestAnEndedContextIsAnswered(t *testing.T) {
	ask := map[string]func(context.Context, *uncached) error{
		"Get": func(ctx context.Context, u *uncached) error {
			return u.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "a"}, &corev1.ConfigMap{})
		},
		"List": func(ctx context.Context, u *uncached) error { return u.List(ctx, &corev1.ConfigMapList{}) },
	}
	for what, ask := range ask {
		ctx, cancel := context.WithCancel(t.Context())
		u, s := answering(cache.Options{})
		s.cancel = cancel
		if err := ask(ctx, u); err != nil {
			t.Errorf("%s with a context that ends meanwhile: %v", what, err)
		}
		if err := ask(ctx, u); err != nil {
			t.Errorf("%s with a context that has ended: %v", what, err)
		}
		if len(s.requests) != 3 {
			t.Errorf("%s: %d requests, want 2 and 1", what, len(s.requests))
		}
	}
}
