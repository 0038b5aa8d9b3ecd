package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Story is what happens in a run. It starts the replicas and the load. When it returns, the run is judged.
type Story func(context.Context, *Show) error

// Options are the options of Run. Slots is required.
type Options struct {
	// Kubeconfig names a cluster to use, as an administrator who may impersonate. If it is empty, the demo starts a
	// control plane.
	Kubeconfig string
	// AuditLogs are the audit logs of all of that cluster's API servers, if they can be read here.
	AuditLogs []string
	// Objects is the number of Websites. 0: as many as the machine reconciles in half a minute, at most 2000.
	Objects int
	// Rate is the number of updates, deletions and recreations per second. 0: a third of the Websites that the machine
	// can bring up per second, at most 50.
	Rate float64
	// Delivery is how the objects of their slots reach the replicas. Default sharding.Filter. With sharding.ShardSelector
	// the rota's key is slot.KeyUID, otherwise slot.KeyName.
	Delivery sharding.Mode
	// Slots is the number of slots of the rota.
	Slots slot.Count
	// LeaseDuration and the following are those of rota.Options; zero is its default.
	LeaseDuration, RenewDeadline, RetryPeriod, WriteTimeout time.Duration
	// Baseline is how long the replicas work undisturbed before the first phase. Default 20 s.
	Baseline time.Duration
	// Seed is the load's. If it is 0, the demo chooses one and prints it.
	Seed uint64
	// Keep leaves the folder with journals, logs and audit log behind, and prints its path.
	Keep bool
	// Verbose makes the replicas log more.
	Verbose bool
	// Progress gets a line for each event.
	Progress io.Writer
	// Story is what happens. Default Main("").
	Story Story
	// Command starts a replica: a program, and its arguments, that calls OperatorMain. Default: this program with the
	// argument "demo-operator".
	Command []string
}

func (o *Options) setDefaults() error {
	switch {
	case o.Objects < 0 || o.Objects > 100_000:
		return fmt.Errorf("objects %d: must be from 1 to 100000, or 0 for what the machine can sustain", o.Objects)
	case !(o.Rate >= 0 && o.Rate <= 1000):
		return fmt.Errorf("rate %v: must be at most 1000 per second, or 0 for what the machine can sustain", o.Rate)
	case len(o.AuditLogs) > 0 && o.Kubeconfig == "":
		return fmt.Errorf("audit log %s: only with a kubeconfig; the demo's own control plane has one", o.AuditLogs[0])
	case o.Slots < 16:
		if err := o.Slots.Validate(); err != nil {
			return err
		}
		return fmt.Errorf("slot count %d: use at least 16, so that there is something to share", o.Slots)
	}
	if o.Delivery == sharding.ModeUnknown {
		o.Delivery = sharding.Filter
	}
	if err := o.Delivery.Fits(o.key()); err != nil {
		return err
	}
	if o.Baseline == 0 {
		o.Baseline = 20 * time.Second
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Story == nil {
		o.Story = Main("")
	}
	return o.Slots.Validate()
}

// key is what of an object is hashed.
func (o *Options) key() slot.Key {
	if o.Delivery == sharding.ShardSelector {
		return slot.KeyUID
	}
	return slot.KeyName
}
