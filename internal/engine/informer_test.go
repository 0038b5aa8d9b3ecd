package engine

import (
	"context"
	"strings"
	"testing"

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
)

func TestShareInformer(t *testing.T) {
	r := testRota(t)
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://127.0.0.1:1"})
	factory := informers.NewSharedInformerFactory(client, 0)
	kind, secrets := corev1.SchemeGroupVersion.WithKind("Secret"), client.CoreV1().Secrets(metav1.NamespaceAll)
	shared, err := ShareInformer(r, factory, kind, &corev1.Secret{}, secrets)
	noError(t, err)
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
	noError(t, r.Shard(parent))
	owner := Children{Of: parent}
	noError(t, r.Shard(secretKind, owner))
	own := r.NewInformer(parent, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	children := r.NewInformer(secretKind, &cache.ListWatch{}, &corev1.Secret{}, 0, nil, owner)
	if r.share.HoldsByOwner(own) || !r.share.Sharded(parent) {
		t.Error("the informer of a kind that is shared by its own keys does not hold the share by them")
	}
	if !r.share.HoldsByOwner(children) || !r.share.Owned(secretKind) || r.share.Sharded(secretKind) {
		t.Error("the informer of children does not hold the share by owners")
	}
	r.setup.ran = true
	if err := r.Shard(gadgetKind); err == nil || !strings.Contains(err.Error(), "call Shard first") {
		t.Errorf("Shard after Run: error %v, want one", err)
	}
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
			if (err == nil) != (test.words == nil) {
				t.Errorf("%T, %s: error %v, want one: %t", client, name, err, test.words != nil)
				continue
			}
			for _, word := range append(test.words, "") {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("%T, %s: the error does not say %q: %v", client, name, word, err)
				}
			}
		}
	}
}
