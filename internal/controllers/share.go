package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Share is the part of a delivery.Share that controllers use. The simulator has its own.
type Share interface {
	// Who holds what: see delivery.Share.
	Hold(set slot.Set)
	HoldAnew(set slot.Set)
	Held() slot.Set
	Holds(s slot.Slot) bool
	Warm(ctx context.Context, set slot.Set) error
	Load(ctx context.Context, set slot.Set, cause table.Cause, versions table.Versions, held bool) error
	OpenToReads(set slot.Set)
	Unmute(set slot.Set)
	Gather(set slot.Set) map[schema.GroupKind]delivery.Opened
	CatchUp(ctx context.Context, set slot.Set) error
	Shut(set slot.Set)
	Release(set slot.Set)

	// What a kind's store has.
	Locate(kind schema.GroupKind, key types.NamespacedName) (slot.Slot, bool)
	Stored(kind schema.GroupKind, key types.NamespacedName) (slot.Slot, bool)
	UID(kind schema.GroupKind, key types.NamespacedName) (types.UID, bool)
	Exists(kind schema.GroupKind, key types.NamespacedName) bool
	SlotOf(kind schema.GroupKind, obj metav1.Object) (slot.Slot, bool)
	Size(kind schema.GroupKind) int
	Live(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (bool, error)

	// What the store does not show yet.
	Lacks(kind schema.GroupKind, s slot.Slot) bool
	Stale(kind schema.GroupKind) bool
	Ended() []schema.GroupKind
	Heard(informer cache.SharedIndexInformer) bool
	IsLedElsewhere() bool
	ShowOwn(ctx context.Context, kind schema.GroupKind, key types.NamespacedName, controller string)
	ShowWritten(ctx context.Context, s slot.Slot) error
}

var _ Share = (*delivery.Share)(nil)
