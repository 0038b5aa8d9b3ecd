package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
)

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
				noError(t, err)
				factory := informers.NewSharedInformerFactory(client, deliverytest.Never)
				shared, err := ShareInformer(r, factory, pods, &corev1.Pod{}, client.CoreV1().Pods(metav1.NamespaceAll),
					test.children...)
				noError(t, err)
				if !test.deaf {
					if _, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
						t.Fatal(err)
					}
				}
				if test.says {
					noError(t, r.Shard(pods.GroupKind()))
				}
				work := func(ctx context.Context) { factory.Start(ctx.Done()); <-ctx.Done(); factory.Shutdown() }
				if test.queue {
					maps, err := ShareInformer(r, factory, configMaps, &corev1.ConfigMap{},
						client.CoreV1().ConfigMaps(metav1.NamespaceAll))
					noError(t, err)
					q, err := NewQueue(r, "maps", maps, testInner[string](t))
					noError(t, err)
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
				err = <-done
				if test.words == nil && err != nil || test.words != nil && err == nil {
					t.Fatalf("Work returned %v", err)
				}
				for _, word := range test.words {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("the error does not say %q: %v", word, err)
					}
				}
			})
		})
	}
}
