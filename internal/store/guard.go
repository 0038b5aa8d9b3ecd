package store

import (
	"errors"
	"fmt"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// Writable is rule R4: no invalid table is ever written.
func Writable(t *table.Table) error {
	if t == nil {
		return errors.New("table: nil")
	}
	if err := t.Valid(); err != nil {
		return fmt.Errorf("table epoch %d is invalid, it was not written: %w", t.Epoch, err)
	}
	return nil
}

// Conditional refuses a write that would be unconditional: to Kubernetes an empty precondition is none.
func Conditional(uid, version string) error {
	if uid == "" || version == "" {
		return fmt.Errorf("precondition uid %q, version %q: both are required", uid, version)
	}
	return nil
}
