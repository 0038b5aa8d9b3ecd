package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/delivery/sieve"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

func TestShareInformer(t *testing.T) {
	r := testRota(t)
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://127.0.0.1:1"})
	factory := informers.NewSharedInformerFactory(client, 0)
	kind, secrets := corev1.SchemeGroupVersion.WithKind("Secret"), client.CoreV1().Secrets(metav1.NamespaceAll)
	shared, err := ShareInformer(r, factory, kind, &corev1.Secret{}, secrets)
	require.NoError(t, err)
	got := factory.Core().V1().Secrets().Informer()
	if got.GetIndexer() != shared.GetIndexer() {
		t.Error("the factory gives out another informer than the shared one")
	}
	if _, ok := got.GetIndexer().GetIndexers()[cache.NamespaceIndex]; !ok {
		t.Error("no index by namespace, which listers need to be fast")
	}
	if _, err := ShareInformer(r, factory, kind, &corev1.Secret{}, secrets); err == nil {
		t.Error("a second ShareInformer gave no error, want one: the factory has the informer")
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	defer queue.ShutDown()
	if _, err := NewQueue(r, "test", factory.Core().V1().ConfigMaps().Informer(), queue); err == nil {
		t.Error("a queue for an informer of all objects gave no error, want one")
	}
	if _, err := NewQueue(r, "test", shared, queue); err != nil {
		t.Error(err)
	}
	if !r.share.Sharded(secretKind) {
		t.Error("NewQueue did not shard the kind")
	}
}

// Without a factory: an informer holds the share of what Shard declared, by the objects' keys or by their owners'.
func TestNewInformer(t *testing.T) {
	r := testRota(t)
	parent := schema.GroupKind{Kind: "ConfigMap"}
	require.NoError(t, r.Shard(parent))
	owner := Children{Of: parent}
	require.NoError(t, r.Shard(secretKind, owner))
	own := r.NewInformer(parent, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	children := r.NewInformer(secretKind, &cache.ListWatch{}, &corev1.Secret{}, 0, nil, owner)
	if r.share.HoldsByOwner(own) || !r.share.Sharded(parent) {
		t.Error("the informer of a kind that is shared by its own keys does not hold the share by them")
	}
	if !r.share.HoldsByOwner(children) || !r.share.Owned(secretKind) || r.share.Sharded(secretKind) {
		t.Error("the informer of children does not hold the share by owners")
	}
	r.setup.ran = true
	require.NoError(t, r.Shard(gadgetKind))
	r.opts.Label = true
	require.ErrorSays(t, r.Shard(schema.GroupKind{Kind: "Late"}), "call Shard before")
}

// A member does not join before the informers run: the slots would look empty.
func TestRunWaitsForInformers(t *testing.T) {
	r := testRota(t)
	testQueue(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil || r.ID() != "" {
		t.Errorf("Run joined as %q and returned %v, want it not to join", r.ID(), err)
	}
}

// selecting lists what its client does with another selector.
type selecting struct{ typed.SecretInterface }

func (l selecting) List(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error) {
	o.LabelSelector = "app=web"
	return l.SecretInterface.List(ctx, o)
}

// A factory that lists less than the client is refused: the controller would work on objects that it must not touch.
func TestFilteredFactories(t *testing.T) {
	inProd := informers.WithNamespace("prod")
	tweaked := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=web" })
	for _, client := range []kubernetes.Interface{
		kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://127.0.0.1:1"}), fake.NewClientset(),
	} {
		all, prod := client.CoreV1().Secrets(metav1.NamespaceAll), client.CoreV1().Secrets("prod")
		for name, test := range map[string]struct {
			option informers.SharedInformerOption
			client typed.SecretInterface
			words  []string // nil: no error
		}{
			"a namespace":                   {inProd, all, []string{`WithNamespace("prod")`, "all namespaces"}},
			"another namespace":             {inProd, client.CoreV1().Secrets("test"), []string{"prod", "lists namespace test"}},
			"the client's namespace":        {inProd, prod, nil},
			"options":                       {tweaked, all, []string{"WithTweakListOptions", "a value of your own"}},
			"options that the client knows": {tweaked, selecting{all}, nil},
			"neither":                       {informers.WithNamespace(""), prod, nil},
		} {
			factory := informers.NewSharedInformerFactoryWithOptions(client, 0, test.option)
			_, err := ShareInformer(testRota(t), factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
				test.client)
			t.Run(fmt.Sprintf("%s, %T", name, client), func(t *testing.T) { require.ErrorSays(t, err, test.words...) })
		}
	}
}

// A kind that is shared and that no queue works on is refused: the objects of a slot that comes would reach nobody.
func TestSharedKindsWithoutAQueue(t *testing.T) {
	pods, configMaps := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("ConfigMap")
	for name, test := range map[string]struct {
		key               slot.Key
		queue, deaf, says bool // of ConfigMaps; the Pods have no handler; Shard is called
		children          []Children
		words             []string // nil: it works
	}{
		"a library with its own queue": {
			words: []string{"informer of Pod", "rota.NewQueue", "rota.Children", "Rota.Duty"}},
		"the same, key Namespace": {key: slot.KeyNamespace, words: []string{"informer of Pod", "rota.NewQueue"}},
		"children with no queue":  {children: []Children{{Of: labKind}}, words: []string{"informer of Pod", "owners"}},
		"children of a kind without a queue": {
			queue: true, children: []Children{{Of: schema.GroupKind{Group: "apps", Kind: "Deployment"}}},
			words: []string{"informer of Pod", "Deployment.apps", "Children.Of", "rota.NewQueue"}},
		"children of a kind with a wrong group": {
			queue: true, children: []Children{{Of: schema.GroupKind{Group: "wrong", Kind: labKind.Kind}}},
			words: []string{"informer of Pod", labKind.Kind + ".wrong",
				`Did you mean schema.GroupKind{Group: "", Kind: "ConfigMap"}`}},
		"children not declared":     {queue: true, words: []string{"informer of Pod", "rota.Children"}},
		"children":                  {queue: true, children: []Children{{Of: labKind}}},
		"a chain in a namespace":    {queue: true, key: slot.KeyNamespace},
		"a lister":                  {deaf: true},
		"objects of the same names": {queue: true, says: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				r, err := New(nil, Options{Solo: true, Key: test.key})
				require.NoError(t, err)
				factory := informers.NewSharedInformerFactory(client, deliverytest.Never)
				shared, err := ShareInformer(r, factory, pods, &corev1.Pod{}, client.CoreV1().Pods(metav1.NamespaceAll),
					test.children...)
				require.NoError(t, err)
				if !test.deaf {
					withHandler(t, shared)
				}
				if test.says {
					require.NoError(t, r.Shard(pods.GroupKind()))
				}
				work := func(ctx context.Context) { factory.Start(ctx.Done()); <-ctx.Done(); factory.Shutdown() }
				if test.queue {
					maps, err := ShareInformer(r, factory, configMaps, &corev1.ConfigMap{},
						client.CoreV1().ConfigMaps(metav1.NamespaceAll))
					require.NoError(t, err)
					q, err := NewQueue(r, "maps", maps, testInner[string](t))
					require.NoError(t, err)
					work = func(ctx context.Context) {
						factory.Start(ctx.Done())
						context.AfterFunc(ctx, q.ShutDown)
						q.Get()
						<-ctx.Done()
						factory.Shutdown()
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- r.Work(ctx, work) }()
				synctest.Wait()
				if test.words == nil {
					if !r.state.HasJoined() {
						t.Errorf("it has not joined: %v", r.Ready(nil))
					}
					cancel()
				}
				require.ErrorSays(t, <-done, test.words...)
			})
		})
	}
}

// The transport removes other members' objects from the lists of informers, and changes no other answer.
func TestTransportSiftsLists(t *testing.T) {
	const all = `{"kind":"ConfigMapList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`
	transport := testRota(t).WrapTransport(roundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Request: req, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(all)),
		}, nil
	}))
	get := func(ctx context.Context) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1/api/v1/configmaps", nil)
		require.NoError(t, err)
		res, err := transport.RoundTrip(req)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return string(body)
	}
	s := &sieve.Sieve{
		Drop: func(about *metav1.ObjectMeta) bool { return about.Name == "a" },
		Note: func(int, []*metav1.ObjectMeta) {},
	}
	require.Equal(t, "an informer's list", `{"kind":"ConfigMapList","items":[{"metadata":{"name":"b"}}]}`,
		get(s.Into(t.Context())))
	require.Equal(t, "another list", all, get(t.Context()))
}
