package feed

import (
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// newCommon returns what the informers of a share have in common, which holds no slots.
func newCommon(o sharding.Options) *Common {
	ignore := func(*Informer, slot.Set) {}
	return New(Options{
		Roles: sharding.New(o), Patience: 200 * time.Millisecond, Excuse: 5 * time.Second, Complete: ignore, Missed: ignore,
	})
}

// hold has the informers hold slots.
func (c *Common) hold(set slot.Set) {
	c.Want(set, slot.Set{})
	for _, inf := range c.Active() {
		inf.Source.Wake()
	}
}

// listsOnly is a ListerWatcher that the reflector does not ask for initial events.
type listsOnly struct{ cache.ListerWatcher }

func (listsOnly) IsWatchListSemanticsUnSupported() bool { return true }
