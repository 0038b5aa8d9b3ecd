package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// Subject is the object of a reconcile with slot.KeyUID: the object with the reconciled name in a certain slot.
type Subject struct {
	Kind schema.GroupKind
	Name types.NamespacedName
	Slot slot.Slot
	// Gone is true if the object was deleted.
	Gone bool
}

// subjectKey is the context key of a share's Subject. A program may have several rotas, each with its share.
type subjectKey struct{ share Share }

// WithSubject returns the context for a reconcile of s.
func WithSubject(ctx context.Context, share Share, s Subject) context.Context {
	return context.WithValue(ctx, subjectKey{share}, s)
}

// Deleted reports whether ctx belongs to a reconcile of a deleted object of this kind and name. A reader then has to
// return NotFound, because a new object of the same name does not concern the reconcile.
func Deleted(ctx context.Context, share Share, kind schema.GroupKind, name types.NamespacedName) bool {
	about, ok := ctx.Value(subjectKey{share}).(Subject)
	return ok && about.Gone && about.Kind == kind && about.Name == name
}

// Namesake reports whether obj, which was read with the context of a reconcile, has the name of the reconciled object
// but is in another slot, and so is a different object. It may belong to another member, so the reader has to return
// NotFound.
func Namesake(ctx context.Context, share Share, kind schema.GroupKind, obj metav1.Object) bool {
	about, ok := ctx.Value(subjectKey{share}).(Subject)
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	if !ok || about.Kind != kind || about.Name != name {
		return false
	}
	n, ok := share.SlotOf(kind, obj)
	return about.Gone || ok && n != about.Slot
}
