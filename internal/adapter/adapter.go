// Package adapter is what ctrlrt needs of a rota and users must not have: with the methods of a Share or a Gate that
// open slots, a program could work on objects of other members.
package adapter

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

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
	// Solo is rota.Options.Solo.
	Solo bool
	// Ending says that the process ends although the member has not left, so that informers stop before it does. That is
	// not their fault.
	Ending func()
	// SettingUp reports whether the member waits, or will wait, for something to be set up (rota.Rota.JoinAfter).
	// FinishSetup has a function called when it need not wait any more, before it joins. It is given before Run.
	SettingUp   func() bool
	FinishSetup func(func(context.Context) error)
}

// ErrPanicked is the outcome (rota.Controller.Ended) of a reconcile that did not return.
var ErrPanicked = errors.New("the reconciler panicked: the log has the stack")

// Of returns the parts of a *rota.Rota, and panics with anything else. Package rota sets it when it is initialized.
var Of func(rota any) Parts
