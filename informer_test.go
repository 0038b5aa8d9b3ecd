package rota

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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
	if err != nil {
		t.Fatal(err)
	}
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
	if !r.Share().Sharded(schema.GroupKind{Kind: "Secret"}) {
		t.Error("NewQueue did not shard the kind")
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
