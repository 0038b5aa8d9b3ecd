package controlplane

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/test/require"
)

// auditEvent has the fields of an audit line that the built-in policy promises.
type auditEvent struct {
	Verb      string
	UserAgent string
	User      struct{ Username string }
	ObjectRef struct {
		Resource, Namespace, Name, ResourceVersion string
	}
	RequestReceivedTimestamp, StageTimestamp time.Time
	ResponseStatus                           struct{ Code int }
	RequestObject                            json.RawMessage
	ResponseObject                           *struct {
		Metadata struct {
			ResourceVersion string
			ManagedFields   []any
		}
	}
}

// auditEvents returns the events of one user agent, in order.
func auditEvents(t *testing.T, c *ControlPlane, userAgent string) []auditEvent {
	t.Helper()
	var events []auditEvent
	for _, path := range c.AuditLogs() {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range bytes.Lines(b) {
			var e auditEvent
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("audit line: %v: %s", err, line)
			}
			if e.UserAgent == userAgent {
				events = append(events, e)
			}
		}
	}
	return events
}

var widgetCRD = []byte(`# a comment
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
`)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": int64(1)},
	}}
}

func TestAuditLog(t *testing.T) {
	c := For(t)
	ns := Namespace(t)
	require.NoError(t, c.InstallCRDs(t.Context(), widgetCRD))
	config := c.Config()
	config.UserAgent = ns // of this run of the test only
	maps := clientset(t, config).CoreV1().ConfigMaps(ns)
	cm, err := maps.Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	require.NoError(t, err)
	updated := cm.DeepCopy()
	updated.Data["k"] = "w"
	if updated, err = maps.Update(t.Context(), updated, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := dynamicClient(t, config).Resource(widgets).Namespace(ns).Create(t.Context(), widget("b"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = maps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	want := []struct {
		verb, resource, name, requestVersion, responseVersion string
		code                                                  int
	}{
		{"create", "configmaps", "a", "", cm.ResourceVersion, 201},
		{"update", "configmaps", "a", cm.ResourceVersion, updated.ResourceVersion, 200},
		{"create", "widgets", "b", "", w.GetResourceVersion(), 201},
		{"list", "configmaps", "", "", "", 200},
	}
	// The log is written before the response's last byte, so no wait is needed for what has been answered.
	events := auditEvents(t, c, ns)
	if len(events) != len(want) {
		t.Fatalf("%d audit events, want %d", len(events), len(want))
	}
	for i, e := range events {
		w := want[i]
		if e.Verb != w.verb || e.ObjectRef.Resource != w.resource || e.ObjectRef.Name != w.name || e.ObjectRef.Namespace != ns ||
			e.ObjectRef.ResourceVersion != w.requestVersion || e.ResponseStatus.Code != w.code {
			t.Errorf("event %d is %+v, want %+v", i, e, w)
		}
		if e.User.Username != "rota-kube-admin" || e.RequestReceivedTimestamp.IsZero() || e.StageTimestamp.Before(e.RequestReceivedTimestamp) {
			t.Errorf("event %d: user %q, received %s, stage %s", i, e.User.Username, e.RequestReceivedTimestamp, e.StageTimestamp)
		}
		if w.responseVersion == "" {
			if e.ResponseObject != nil || e.RequestObject != nil {
				t.Errorf("event %d: a read with a body", i)
			}
			continue
		}
		if e.ResponseObject == nil || e.ResponseObject.Metadata.ResourceVersion != w.responseVersion || e.ResponseObject.Metadata.ManagedFields != nil {
			t.Errorf("event %d: response %+v, want resourceVersion %s without managedFields", i, e.ResponseObject, w.responseVersion)
		}
	}
}
