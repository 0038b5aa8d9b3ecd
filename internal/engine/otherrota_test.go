package engine

import (
	"testing"
)

// A reconcile of one rota that uses another one's client is in none of the other's slots.
func TestAContextOfAnotherRota(t *testing.T) {
	hub, spoke := testRota(t), testRota(t)
	ctx := hub.withSlot(t.Context(), 3)
	if len(slotsFrom(ctx, hub)) != 1 || len(slotsFrom(ctx, spoke)) != 0 {
		t.Errorf("slots %v and %v, want one and none", slotsFrom(ctx, hub), slotsFrom(ctx, spoke))
	}
}
