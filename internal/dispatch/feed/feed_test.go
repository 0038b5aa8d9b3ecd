package feed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/feed"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

// source is the metadata of one resource in one namespace. broken, if set, ends watches and says that the version is too
// old, as long as it is true. lists counts requests.
func source(t *testing.T, resource schema.GroupVersionResource, namespace string, broken *atomic.Bool,
	lists *atomic.Int32,
) cache.ListerWatcherWithContext {
	t.Helper()
	client, err := metadata.NewForConfig(controlplane.For(t).Config())
	require.NoError(t, err)
	objects := client.Resource(resource).Namespace(namespace)
	return cache.ToListerWatcherWithContext(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			lists.Add(1)
			return objects.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := objects.Watch(ctx, o)
			if err != nil || broken == nil {
				return w, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if broken.Load() {
					status := apierrors.NewResourceExpired("too old").Status()
					return watch.Event{Type: watch.Error, Object: &status}, true
				}
				return e, true
			}), nil
		},
	})
}

// seen records what a feed tells.
type seen struct {
	mu     sync.Mutex
	events []string
	missed int
}

func (s *seen) event(obj metav1.Object, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := obj.GetName()
	if deleted {
		text = "-" + text
	}
	if !slices.Contains(s.events, text) {
		s.events = append(s.events, text)
	}
}

func (s *seen) miss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed++
}

func (s *seen) has(names ...string) func() string {
	return func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, name := range names {
			if !slices.Contains(s.events, name) {
				return fmt.Sprintf("events %v, want %s", s.events, name)
			}
		}
		return ""
	}
}

func eventually(t *testing.T, problem func() string) {
	t.Helper()
	require.NoError(t, await.Until(t.Context(), 10*time.Millisecond, 30*time.Second, problem))
}

func run(t *testing.T, f *feed.Feed) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
}

func names(t *testing.T, f *feed.Feed) []string {
	t.Helper()
	var out []string
	_, err := f.List(t.Context(), func(obj metav1.Object) error {
		if !strings.HasPrefix(obj.GetName(), "kube-") { // kube-root-ca.crt
			out = append(out, obj.GetName())
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

func TestFollows(t *testing.T) {
	namespace := controlplane.Namespace(t)
	client, err := kubernetes.NewForConfig(controlplane.For(t).Config())
	require.NoError(t, err)
	objects := client.CoreV1().ConfigMaps(namespace)
	create := func(name string) {
		t.Helper()
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := objects.Create(t.Context(), obj, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("a-%02d", i))
		create(want[i])
	}
	var s seen
	var broken atomic.Bool
	var lists atomic.Int32
	f := feed.New(feed.Options{Name: "ConfigMap", Source: source(t, configMaps, namespace, &broken, &lists), Page: 10,
		Event: s.event, Missed: s.miss})
	run(t, f)
	if got := names(t, f); !slices.Equal(got, want) {
		t.Errorf("listed %v", got)
	}
	if n := lists.Load(); n != 1+3 {
		t.Errorf("%d requests for 25 objects in pages of 10, and the position", n)
	}
	create("b")
	eventually(t, s.has("b"))
	require.NoError(t, objects.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	eventually(t, s.has("-b"))
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := client.CoreV1().Secrets(namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err) // so that the server's version is ahead of the kind's
	}
	require.NoError(t, f.CatchUp(soon))
	if s.missed != 0 || len(s.events) > 3 { // kube-root-ca.crt may be among them
		t.Errorf("missed %d, events %v", s.missed, s.events)
	}
	broken.Store(true)
	create("c") // the watch breaks instead
	eventually(t, func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.missed == 0 {
			return "nothing was missed"
		}
		return ""
	})
	broken.Store(false)
	if got := names(t, f); !slices.Equal(got, append(want, "c")) {
		t.Errorf("listed %v", got)
	}
	create("d")
	eventually(t, s.has("d"))
	if s.has("c")() == "" {
		t.Error("c came as an event, so the test shows nothing")
	}
	stop := errors.New("enough")
	if _, err := f.List(t.Context(), func(metav1.Object) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v, want that of the function", err)
	}
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.feed.example.com}
spec:
  group: feed.example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A kind that is not served is empty, until it is.
func TestServedLater(t *testing.T) {
	namespace := controlplane.Namespace(t)
	resource := schema.GroupVersionResource{Group: "feed.example.com", Version: "v1", Resource: "widgets"}
	var s seen
	var lists atomic.Int32
	f := feed.New(feed.Options{Name: "Widget", Source: source(t, resource, namespace, nil, &lists), Event: s.event,
		Missed: s.miss, Unserved: 50 * time.Millisecond})
	waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.List(waiting, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a list without a position: %v", err)
	}
	run(t, f)
	if got := names(t, f); len(got) > 0 {
		t.Errorf("listed %v", got)
	}
	require.NoError(t, controlplane.For(t).InstallCRDs(t.Context(), []byte(widgets)))
	eventually(t, func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.missed == 0 {
			return fmt.Sprintf("nothing was missed; %v", f.Err())
		}
		return ""
	})
}
