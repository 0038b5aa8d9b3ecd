// Package storetest is the conformance suite of package store: every implementation passes it.
package storetest

import (
	"testing"

	"github.com/rota-dev/rota/internal/store"
)

// Target is a fresh, empty store of one rota, with the means to meddle.
type Target struct {
	Store store.Store
	// Other is a second client of the same objects.
	Other store.Store
	Tamper
}

// Tamper does what people with kubectl do, and what networks do.
type Tamper interface {
	RemoveTable(t *testing.T)
	// Text returns the table's text.
	Text(t *testing.T) map[string]string
	// EditTable changes the text under the same UID.
	EditTable(t *testing.T, edit func(text map[string]string))
	// RestoreTable deletes the table and creates it with this text, under a new UID.
	RestoreTable(t *testing.T, text map[string]string)
	RemoveLease(t *testing.T, id string)
	// TouchLease changes something that is no business of the member.
	TouchLease(t *testing.T, id string)
	// HoldLease gives the Lease to another holder.
	HoldLease(t *testing.T, id, holder string)
	// Disconnect breaks all connections, watches included.
	Disconnect(t *testing.T)
}

// Run runs the suite. target is called once per test.
func Run(t *testing.T, target func(t *testing.T) Target) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Target)
	}{
		{"table is missing, created, swapped", tableLife},
		{"table swap conflicts", tableConflicts},
		{"table writes refuse what is invalid", tableInvalid},
		{"table edited by hand", tableEdited},
		{"table restored under a new UID", tableRestored},
		{"table watch sees every version in order", tableWatch},
		{"table watch survives disconnects", tableReconnect},
		{"lease is created, renewed, deleted", leaseLife},
		{"lease deletion is conditional", leaseDelete},
		{"lease deleted by hand is not created again", leaseMissing},
		{"lease replaced or taken is lost", leaseLost},
		{"lease edited by hand is not lost", leaseEdited},
		{"lease renewal with an old version goes through", leaseOldVersion},
		{"lease watch of all", leaseWatchAll},
		{"lease watch of some", leaseWatchSome},
		{"lease watch survives disconnects", leaseReconnect},
		{"no time left", noTime},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, target(t)) })
	}
}
