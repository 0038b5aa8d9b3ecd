package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Options are the options of Run. Slots is required; see cmd/rota for its default.
type Options struct {
	// Kubeconfig names a cluster to use, as an administrator who may impersonate; empty: a control plane of its own.
	Kubeconfig string
	// AuditLogs are the audit logs of all of that cluster's API servers, if they can be read here.
	AuditLogs []string
	// Objects is the number of Websites. 0: as many as the machine reconciles in half a minute, at most 2000.
	Objects int
	// Rate is the number of updates, deletions and recreations per second. 0: a third of the Websites that the machine
	// can bring up per second, at most 50.
	Rate float64
	// Delivery is how the objects of their slots reach the replicas. Default sharding.Filter. With sharding.ShardSelector
	// the rota's key is slot.KeyUID, with the others slot.KeyName.
	Delivery sharding.Mode
	// Slots is the number of slots of the rota.
	Slots slot.Count
	// LeaseDuration and the following are those of rota.Options; zero is its default.
	LeaseDuration, RenewDeadline, RetryPeriod, WriteTimeout time.Duration
	// Baseline is how long the replicas work undisturbed before the first phase. Default 20 s.
	Baseline time.Duration
	// Seed is that of the load; 0: a random one, which is told.
	Seed uint64
	// Keep leaves the folder with journals, logs and audit log behind, and tells where it is.
	Keep bool
	// Verbose shows the events of the load and of the replicas.
	Verbose bool
	// Progress gets the live view, or plain lines where it is no terminal.
	Progress io.Writer
	// Release, unless empty, is the program rota-demo of another release. After the rolling restart there is a rolling
	// update to its replicas, and one back.
	Release string
	// Dashboard, unless nil, opens a dashboard with buttons. Once everything is set up, the demo leaves the replicas to
	// them, instead of its story, until Run's ctx ends. It judges the run then, which takes a minute or two more.
	Dashboard OpenDashboard
	// Migrate tells another story: replicas with leader election are replaced by members of a rota, and back.
	Migrate bool
	// Autoscale, unless nil, tells a story of an autoscaler. It needs Objects and Rate.
	Autoscale *Autoscale
	// Canary, unless nil, tells a story of canaries.
	Canary *Canary
	// Story, unless nil, is told once everything is set up, instead of the demo's own. It is judged in the same way.
	Story func(context.Context, *Fleet) error
	// Command starts a replica: a program, and its arguments, that calls OperatorMain. Default: this program with the
	// argument "demo-operator".
	Command []string
}

func (o *Options) validate() error {
	switch {
	case o.Objects < 0 || o.Objects > 100_000:
		return fmt.Errorf("objects %d: must be from 1 to 100000, or 0 for what the machine can sustain", o.Objects)
	case !(o.Rate >= 0 && o.Rate <= 1000):
		return fmt.Errorf("rate %v: must be at most 1000 per second, or 0 for what the machine can sustain", o.Rate)
	case len(o.AuditLogs) > 0 && o.Kubeconfig == "":
		return fmt.Errorf("audit log %s: only with a kubeconfig; the demo's own control plane has one", o.AuditLogs[0])
	case o.Migrate && o.Release != "":
		return fmt.Errorf("migration and release %s: choose one of the two stories", o.Release)
	case o.Autoscale != nil && (o.Objects == 0 || o.Rate == 0 || o.Kubeconfig != "" || o.Migrate || o.Dashboard != nil):
		return errors.New("autoscale: objects and rate must be given, and there is no kubeconfig, migration or dashboard")
	case o.Canary != nil && (o.Autoscale != nil || o.Migrate || o.Dashboard != nil || o.Release != ""):
		return errors.New("canary: there is no autoscaler, migration, dashboard or other release with it")
	case o.Story != nil && (o.Autoscale != nil || o.Canary != nil || o.Migrate || o.Dashboard != nil || o.Release != ""):
		return errors.New("story: there is no other one with it")
	case o.Slots < 16:
		if err := o.Slots.Validate(); err != nil {
			return err
		}
		return fmt.Errorf("slot count %d: use at least 16, so that there is something to share", o.Slots)
	}
	if o.Delivery == sharding.ModeUnknown {
		o.Delivery = sharding.Filter
	}
	if o.Autoscale != nil {
		if err := o.Autoscale.validate(); err != nil {
			return err
		}
	}
	if o.Canary != nil {
		o.Canary.setDefaults()
	}
	if err := o.Delivery.Fits(o.key()); err != nil {
		return err
	}
	if o.Baseline == 0 {
		o.Baseline = 20 * time.Second
		if o.Dashboard != nil {
			o.Baseline = 5 * time.Second // somebody waits for the buttons
		}
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
