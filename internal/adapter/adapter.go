// Package adapter is what ctrlrt needs of a rota and users must not have: with the methods of a Share or a Gate that
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

// Access is what rota.Rota.Adapt asks for. Only packages of this module can grant it.
type Access struct{ granted bool }

// Grant returns access.
func Grant() Access { return Access{granted: true} }

// Require panics without access.
func (a Access) Require() {
	if !a.granted {
		panic("rota: Rota.Adapt is for packages of Rota: with it a program could work on objects of other members")
	}
}

// Parts are those of one rota.
type Parts struct {
	Share *delivery.Share
	Gate  *gate.Gate
	// Late is the clock of deadlines: how late it can be since New, the time that the machine slept included.
	Late func() time.Duration
	// Slots and Key are as in rota.Options, with defaults.
	Slots slot.Count
	Key   slot.Key
	// Election is the Lease of leader election that the rota holds; empty: there is none.
	Election types.NamespacedName
	// Reported says whether others can read a report of this member.
	Reported func() bool
	// Table returns the last table seen; nil: there is none. It must not be changed.
	Table func() *table.Table
	// NoStockReplicas and Solo are as in rota.Options.
	NoStockReplicas, Solo bool
	// Ending says that the process ends although the member has not left, so that informers stop before it does. That is
	// not their fault.
	Ending func()
	// SettingUp reports whether the member waits, or will wait, for something to be set up (rota.Rota.JoinAfter).
	// FinishSetup has a function called when it need not wait any more, before it joins. It is given before Run.
	SettingUp   func() bool
	FinishSetup func(func(context.Context) error)
	// NewController shards a kind, before any informer of it runs, and adds a controller of it. The member joins once the
	// controller's workers run (controllers.Controller.Started). Call it before Run (but see rota.Rota.JoinAfter). Run
	// returns an error if no informer of the kind holds this member's share, unless ExpectKindLate was called.
	NewController func(name string, kind schema.GroupKind, enqueue controllers.Enqueue) (*controllers.Controller, error)
	// Observe has an observer hear of the reconciles of sharded controllers, before Run.
	Observe func(controllers.Observer)
	// LogTo has the rota log there, unless it was given a Logger.
	LogTo func(logr.Logger)
	// Keep gives the rota a Keeper, before Run.
	Keep func(controllers.Keeper)
}
