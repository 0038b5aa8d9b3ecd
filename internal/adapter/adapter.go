// Package adapter contains what ctrlrt needs of a rota and users must not have: with methods of a Share or a Gate that
// open slots, a program could work on objects of other members.
package adapter

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Access is the argument of rota.Rota.Adapt. Only packages of this module can grant it.
type Access struct{ granted bool }

// Grant returns access.
func Grant() Access { return Access{granted: true} }

// Require panics without access.
func (a Access) Require() {
	if !a.granted {
		panic("rota: Rota.Adapt is for packages of Rota: with it a program could work on objects of other members")
	}
}

// Parts are the parts of a rota that adapters use.
type Parts struct {
	Share *delivery.Share
	Gate  *gate.Gate
	// Late returns the latest time since New that it can be, including the machine's sleep. Deadlines use it.
	Late func() time.Duration
	// Slots and Key are as in rota.Options, with defaults.
	Slots slot.Count
	Key   slot.Key
	// Election is the leader election Lease that the rota holds, empty if none.
	Election types.NamespacedName
	// Reported reports whether others can read a report of this member.
	Reported func() bool
	// Table returns the last table seen, or nil. It must not be changed.
	Table func() *table.Table
	// NoStockReplicas and Solo are as in rota.Options.
	NoStockReplicas, Solo bool
	// Ending announces that the process ends although the member has not left. Informers that stop before the member are
	// then not reported.
	Ending func()
	// SettingUp reports whether the member waits, or will wait, for something to be set up (rota.Rota.JoinAfter).
	// FinishSetup sets a function that is called when that is over, before the member joins. Call it before Run.
	SettingUp   func() bool
	FinishSetup func(func(context.Context) error)
	// NewController shards a kind, before any informer of it runs, and adds a controller for it. The member joins once the
	// controller's workers run (controllers.Controller.Started). Call it before Run (but see rota.Rota.JoinAfter). Run
	// returns an error if no informer of the kind holds this member's share, unless ExpectKindLate was called.
	NewController func(name string, kind schema.GroupKind, enqueue controllers.Enqueue) (*controllers.Controller, error)
	// Observe sets an observer of the reconciles of sharded controllers. Call it before Run.
	Observe func(controllers.Observer)
	// LogTo sets the rota's logger, unless Options.Logger is set.
	LogTo func(logr.Logger)
	// Keep sets the rota's Keeper. Call it before Run.
	Keep func(controllers.Keeper)
}
