package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/slot"
)

// Subject is, with slot.KeyUID, what a reconcile is about: an object of that name in that slot.
type Subject struct {
	Kind schema.GroupKind
	Name types.NamespacedName
	Slot slot.Slot
	// Gone says that the object was deleted.
	Gone bool
}

// subjectKey is of the subject in one rota, which has one share. A program may have several.
type subjectKey struct{ share *delivery.Share }

// WithSubject returns the context of a reconcile.
func WithSubject(ctx context.Context, share *delivery.Share, s Subject) context.Context {
	return context.WithValue(ctx, subjectKey{share}, s)
}

// Deleted says that ctx is that of a reconcile of an object that was deleted, of this kind and name: a namesake that
// was created since is none of its business, so that a reader has to say that there is no such object.
func Deleted(ctx context.Context, share *delivery.Share, kind schema.GroupKind, name types.NamespacedName) bool {
	about, ok := ctx.Value(subjectKey{share}).(Subject)
	return ok && about.Gone && about.Kind == kind && about.Name == name
}

// Namesake says that obj, which was read with the context of a reconcile, has the name of the object that is reconciled
// and is another one, in another slot of the share: it may be another member's, and a reader has to say that there is
// no such object.
func Namesake(ctx context.Context, share *delivery.Share, kind schema.GroupKind, obj metav1.Object) bool {
	about, ok := ctx.Value(subjectKey{share}).(Subject)
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	if !ok || about.Kind != kind || about.Name != name {
		return false
	}
	n, ok := share.SlotOf(kind, obj)
	return about.Gone || ok && n != about.Slot
}
