package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// records remember the last notification about each object, in a ConfigMap that the object owns.
type records struct{ client kubernetes.Interface }

// field is a record's only field.
const field = "told"

func recordName(obj *unstructured.Unstructured) string { return "notify-" + string(obj.GetUID()) }

// read returns the ID of the last notification that was taken, or "". It asks the API server: another replica may have
// written the record a moment ago.
func (r records) read(ctx context.Context, obj *unstructured.Unstructured) (id string, err error) {
	record, err := r.client.CoreV1().ConfigMaps(obj.GetNamespace()).Get(ctx, recordName(obj), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the record of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return record.Data[field], nil
}

func (r records) write(ctx context.Context, obj *unstructured.Unstructured, id string) error {
	record := recordFor(obj, id)
	_, err := r.client.CoreV1().ConfigMaps(obj.GetNamespace()).Update(ctx, record, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = r.client.CoreV1().ConfigMaps(obj.GetNamespace()).Create(ctx, record, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write the record of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return nil
}

// recordFor returns the record of a notification. The garbage collector deletes it with the object.
func recordFor(obj *unstructured.Unstructured, id string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: obj.GetNamespace(), Name: recordName(obj),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind(), Name: obj.GetName(), UID: obj.GetUID(),
				BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Data: map[string]string{field: id},
	}
}
