package rotatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/await"
)

var namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")

func isNamespace(obj *unstructured.Unstructured) bool {
	kind := groupKind(obj)
	return kind.Group == "" && kind.Kind == "Namespace"
}

// noteNamespaces records the namespaces that exist before the first run, and whether a controller deletes namespaces.
func (k *kit) noteNamespaces(ctx context.Context) error {
	list, err := k.dynamic.Resource(namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	k.namespaces = map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		k.namespaces[list.Items[i].GetName()] = &list.Items[i]
	}
	// A kube-controller-manager creates this ServiceAccount. envtest has no kube-controller-manager.
	accounts := k.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts"))
	_, err = accounts.Namespace(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	k.controllers = err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look whether the API server has controllers: %w", err)
	}
	return nil
}

// restoreNamespaces removes the namespaces that the run created, and undoes its changes to others.
func (r *run) restoreNamespaces(ctx context.Context) error {
	var errs []error
	_, objects := r.record.touched()
	for p := range objects {
		if p.GroupResource != namespaces.GroupResource() {
			continue
		}
		if err := r.restoreNamespace(ctx, p.Name); err != nil {
			errs = append(errs, fmt.Errorf("have Namespace %s as it was before the run: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *run) restoreNamespace(ctx context.Context, name string) error {
	api := r.kit.dynamic.Resource(namespaces)
	was := r.kit.namespaces[name]
	now, err := api.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && was == nil:
		return nil
	case err != nil:
		return err
	}
	if _, ok := r.record.creation(now.GetUID()); ok {
		return r.removeNamespace(ctx, now)
	}
	switch {
	case was == nil:
		return nil // another client's
	case now.GetUID() != was.GetUID() || now.GetDeletionTimestamp() != nil:
		return errors.New("the operator or Change deleted it; let them delete only what they create in a run")
	case maps.Equal(now.GetLabels(), was.GetLabels()) && maps.Equal(now.GetAnnotations(), was.GetAnnotations()) &&
		slices.Equal(now.GetFinalizers(), was.GetFinalizers()):
		return nil
	}
	now.SetLabels(was.GetLabels())
	now.SetAnnotations(was.GetAnnotations())
	now.SetFinalizers(was.GetFinalizers())
	_, err = api.Update(ctx, now, metav1.UpdateOptions{})
	return err
}

// removeNamespace deletes a namespace. If no controller finalizes it, removeNamespace does.
func (r *run) removeNamespace(ctx context.Context, ns *unstructured.Unstructured) error {
	api, name := r.kit.dynamic.Resource(namespaces), ns.GetName()
	err := api.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(ns.GetUID())}})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil && !apierrors.IsConflict(err) { // a conflict means that it is being deleted
		return err
	}
	if len(ns.GetFinalizers()) > 0 { // the controllers with finalizers have ended
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for !r.kit.controllers {
		now, err := api.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			unstructured.RemoveNestedField(now.Object, "spec", "finalizers")
			_, err = api.Update(ctx, now, metav1.UpdateOptions{}, "finalize")
		}
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		break
	}
	for {
		if _, err := api.Get(ctx, name, metav1.GetOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		if err := await.Sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("it was deleted, and is still there: %w", err)
		}
	}
}
