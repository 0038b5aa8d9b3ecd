package controller

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Notification is the body of a request.
type Notification struct {
	// ID is the same each time the notification is sent, so that receivers can drop a repetition. It is made of the
	// object's UID, the state and since when.
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Ready     bool      `json:"ready"`
	Since     time.Time `json:"since"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
}

// notificationOf returns what there is to tell of an object; nil if it has no condition Ready or Available, or if that
// is Unknown.
func notificationOf(obj *unstructured.Unstructured) *Notification {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		text := func(field string) string { s, _ := condition[field].(string); return s }
		if kind, status := text("type"), text("status"); kind != "Ready" && kind != "Available" ||
			status != string(metav1.ConditionTrue) && status != string(metav1.ConditionFalse) {
			continue
		}
		since, err := time.Parse(time.RFC3339, text("lastTransitionTime"))
		if err != nil {
			since = obj.GetCreationTimestamp().Time
		}
		return &Notification{
			ID:   fmt.Sprintf("%s-%s-%d", obj.GetUID(), text("status"), since.Unix()),
			Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName(),
			Ready: text("status") == string(metav1.ConditionTrue), Since: since, Reason: text("reason"),
			Message: text("message"),
		}
	}
	return nil
}
