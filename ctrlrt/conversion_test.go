package ctrlrt_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// converter is a conversion webhook of an operator's own Pods, behind a Service.
type converter struct {
	// ready is the Pod's readiness check. always says that the Service publishes addresses that are not ready.
	ready  func() error
	always atomic.Bool
	// asked counts the conversions that the API server asked for while the Pod was not ready.
	asked atomic.Int32
}

func (c *converter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if c.ready() != nil {
		c.asked.Add(1)
		if !c.always.Load() {
			http.Error(w, "no endpoints available", http.StatusServiceUnavailable)
			return
		}
	}
	var review map[string]any
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	asked := review["request"].(map[string]any)
	for _, obj := range asked["objects"].([]any) {
		obj.(map[string]any)["apiVersion"] = asked["desiredAPIVersion"]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": review["apiVersion"], "kind": review["kind"],
		"response": map[string]any{"uid": asked["uid"], "convertedObjects": asked["objects"],
			"result": map[string]any{"status": "Success"}},
	})
}

// install applies the definition of kind Gauge, which is stored as v1.
func (c *converter) install(t *testing.T, group string) {
	t.Helper()
	server := httptest.NewTLSServer(c)
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	crd := fmt.Sprintf(`{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gauges.%[1]s"},
		"spec": {
			"group": %[1]q, "scope": "Namespaced",
			"names": {"kind": "Gauge", "listKind": "GaugeList", "plural": "gauges", "singular": "gauge"},
			"versions": [
				{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
				{"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}],
			"conversion": {"strategy": "Webhook", "webhook": {
				"conversionReviewVersions": ["v1"], "clientConfig": {"url": %[2]q, "caBundle": %[3]q}}}}}`,
		group, server.URL+"/convert", base64.StdEncoding.EncodeToString(authority))
	plane := controlplane.For(t)
	require.NoError(t, plane.InstallCRDs(t.Context(), []byte(crd)))
	t.Cleanup(func() { // the API server would go on asking a webhook that is gone
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition"})
		definition.SetName("gauges." + group)
		require.NoError(t, adminClient(t).Delete(context.WithoutCancel(t.Context()), definition))
	})
}

// An operator serves the conversion webhook of its own kind. Objects are stored in an older version than the one that
// it reads. A Service leaves out Pods that are not ready, and a member is ready when it has joined, for which it has to
// list. So the message says what the Service needs, and with that the member joins.
func TestConversionWebhookOfTheOperatorItself(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	mgr := newMember(t, controlplane.For(t).Config(), namespace, "a", rota.Options{})
	r := mgr.Rota()
	webhook := &converter{ready: func() error { return r.Ready(nil) }}
	group := namespace + ".rota.dev"
	webhook.install(t, group)
	old := &unstructured.Unstructured{}
	old.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Gauge"})
	old.SetNamespace(namespace)
	old.SetName("stored-as-v1")
	require.NoError(t, c.Create(t.Context(), old))
	gauge := &unstructured.Unstructured{}
	gauge.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v2", Kind: "Gauge"})
	reconciled := make(chan string, 100)
	err := ctrlrt.NewControllerManagedBy(mgr).For(gauge).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			read := gauge.DeepCopy()
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, read); err != nil {
				return reconcile.Result{}, err
			}
			reconciled <- read.GetAPIVersion() + " " + read.GetName()
			return reconcile.Result{}, nil
		}))
	require.NoError(t, err)
	ended := begin(t, mgr).done
	eventually(t, time.Minute, func() string {
		err := r.Ready(nil)
		if err == nil || !strings.Contains(err.Error(), "conversion webhook for "+group) ||
			!strings.Contains(err.Error(), "publishNotReadyAddresses: true") {
			return fmt.Sprintf("ready: %v, want that the conversion webhook is out of reach, and what to do", err)
		}
		return ""
	})
	if webhook.asked.Load() == 0 {
		t.Error("the API server asked for no conversion")
	}
	webhook.always.Store(true)
	select {
	case got := <-reconciled:
		if want := group + "/v2 stored-as-v1"; got != want {
			t.Errorf("reconciled %s, want %s", got, want)
		}
	case err := <-ended:
		t.Fatalf("the manager ended: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatalf("nothing reconciled: %v", r.Ready(nil))
	}
	if err := r.Ready(nil); err != nil {
		t.Errorf("it works, and is not ready: %v", err)
	}
}
