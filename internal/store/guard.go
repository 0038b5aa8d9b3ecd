package store

import (
	"errors"
	"fmt"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// Writable returns an error for an invalid table, which must never be written (rule R4).
func Writable(t *table.Table) error {
	if t == nil {
		return errors.New("table: nil")
	}
	if err := t.Valid(); err != nil {
		return fmt.Errorf("table epoch %d is invalid, it was not written: %w", t.Epoch, err)
	}
	return nil
}

// Conditional refuses a write without preconditions. Kubernetes treats an empty precondition as none.
func Conditional(uid, version string) error {
	if uid == "" || version == "" {
		return fmt.Errorf("precondition uid %q, version %q: both are required", uid, version)
	}
	return nil
}
