package replica

import (
	"context"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// Bystander holds slots without working on them, as in a shadow.
type Bystander struct{}

var _ Blocking = Bystander{}

// Hold implements Blocking.
func (Bystander) Hold(slot.Set) {}

// Warm implements Blocking.
func (Bystander) Warm(_ context.Context, set slot.Set) (slot.Set, error) { return set, nil }

// Expect implements Blocking.
func (Bystander) Expect(member.Load, bool) {}

// Load implements Blocking.
func (Bystander) Load(_ context.Context, a member.Load) (slot.Set, error) { return a.Slots, nil }

// Open implements Blocking.
func (Bystander) Open(context.Context, slot.Set, uint64) func() { return nil }

// CatchUp implements Blocking.
func (Bystander) CatchUp(context.Context, slot.Set) error { return nil }

// Shut implements Blocking.
func (Bystander) Shut(slot.Set) {}

// Release implements Blocking.
func (Bystander) Release(slot.Set) {}

// HeldBack implements Blocking.
func (Bystander) HeldBack(slot.Set) []string { return nil }

// Abandon implements Blocking.
func (Bystander) Abandon(slot.Set) {}

// Drain implements Blocking.
func (Bystander) Drain(d Drain) func() bool {
	for _, s := range d.Slots.Slots() {
		d.Idle(s, nil)
	}
	return func() bool { return false }
}
