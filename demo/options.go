package demo

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
)

// Story is what happens in a run. It starts the replicas and the load. When it returns, the run is judged.
type Story func(context.Context, *Show) error

// Options are the options of Run. Command starts a replica: it calls rig.OperatorMain. Default: this program with the
// argument "demo-operator".
type Options struct {
	rig.StageOptions
	// Delivery is how the objects of their slots reach the replicas. Default sharding.Filter. With sharding.ShardSelector
	// the rota's key is slot.KeyUID, otherwise slot.KeyName.
	Delivery sharding.Mode
	// RenewDeadline, RetryPeriod and WriteTimeout mean the same as in rota.Options. Zero selects the default.
	RenewDeadline, RetryPeriod, WriteTimeout time.Duration
	// Baseline is how long the replicas work undisturbed before the first phase. Default 20 s.
	Baseline time.Duration
	// Story is what happens. Default Main("").
	Story Story
}

func (o *Options) setDefaults() error {
	o.Delivery, o.Baseline = cmp.Or(o.Delivery, sharding.Filter), cmp.Or(o.Baseline, 20*time.Second)
	if o.Story == nil {
		o.Story = Main("")
	}
	return errors.Join(o.Validate(), o.Delivery.Fits(o.key()))
}

// key is what of an object is hashed.
func (o *Options) key() slot.Key {
	if o.Delivery == sharding.ShardSelector {
		return slot.KeyUID
	}
	return slot.KeyName
}
