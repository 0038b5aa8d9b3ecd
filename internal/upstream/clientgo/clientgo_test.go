package clientgo

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func TestFactoryOptions(t *testing.T) {
	tweak := informers.WithTweakListOptions(func(*metav1.ListOptions) {})
	for name, test := range map[string]struct {
		options   []informers.SharedInformerOption
		namespace string
		tweaked   bool
	}{
		"none":      {},
		"namespace": {options: []informers.SharedInformerOption{informers.WithNamespace("ns")}, namespace: "ns"},
		"tweak":     {options: []informers.SharedInformerOption{tweak}, tweaked: true},
		"both":      {[]informers.SharedInformerOption{informers.WithNamespace("ns"), tweak}, "ns", true},
	} {
		factory := informers.NewSharedInformerFactoryWithOptions(nil, 0, test.options...)
		if namespace, tweaked := FactoryOptions(factory); namespace != test.namespace || tweaked != test.tweaked {
			t.Errorf("%s: the factory has namespace %q, tweaked %t, want %q, %t: have its fields changed?", name, namespace,
				tweaked, test.namespace, test.tweaked)
		}
	}
	for _, other := range []any{nil, 1, &struct{ namespace int }{}} {
		if namespace, tweaked := FactoryOptions(other); namespace != "" || tweaked {
			t.Errorf("%T has namespace %q, tweaked %t", other, namespace, tweaked)
		}
	}
}

func TestClientNamespace(t *testing.T) {
	stock, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]kubernetes.Interface{"stock": stock, "fake": fake.NewClientset()} {
		if got, ok := ClientNamespace(client.CoreV1().Secrets("ns")); got != "ns" || !ok {
			t.Errorf("the %s client's namespace is %q, %t, want ns", name, got, ok)
		}
	}
	if got, ok := ClientNamespace(struct{}{}); ok {
		t.Errorf("another client has namespace %q", got)
	}
}

func TestAppliedMeta(t *testing.T) {
	for _, configuration := range []any{
		corev1ac.ConfigMap("a", "ns").WithLabels(map[string]string{"a": "b"}),
		v1.Deployment("a", "ns").WithLabels(map[string]string{"a": "b"}),
	} {
		if meta := AppliedMeta(configuration); meta == nil || meta.Labels["a"] != "b" {
			t.Errorf("%T has metadata %v, want the label: has its embedded field changed?", configuration, meta)
		}
	}
	for _, other := range []any{nil, corev1ac.ConfigMapApplyConfiguration{}, &corev1ac.ConfigMapApplyConfiguration{},
		corev1ac.PodSpec(), &corev1.ConfigMap{}} {
		if meta := AppliedMeta(other); meta != nil {
			t.Errorf("%T has metadata %v", other, meta)
		}
	}
}

// Rota's own tests of delivery use the selector; here its field only has to be the one that requests are made from.
func TestSetShardSelector(t *testing.T) {
	o := metav1.ListOptions{}
	set := SetShardSelector(&o, "half")
	if changed := o.String() != (&metav1.ListOptions{}).String(); changed != set {
		t.Errorf("SetShardSelector is %t, and the options are %v", set, o)
	}
}

func TestVersionsOfStores(t *testing.T) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	version, ok := StoreVersion(store)
	if version != "" {
		t.Errorf("an empty store has version %q, %t", version, ok)
	}
	if !KeepsOrder() {
		t.Error("informers do not keep the order of events by default")
	}
	if WatchListUnsupported(store) {
		t.Error("a store declares that its server cannot send initial events")
	}
}
