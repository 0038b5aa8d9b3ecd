package dispatch

import (
	"context"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/process"
)

// engine is one run. The members of its stage's fleet are the dispatchers.
type engine struct {
	*rig.Stage
	o       *Options
	python  string         // the interpreter of workers; "" if there is none
	pythons []*rig.Replica // the workers in Python
	ports   []int
	losses  []loss
}

// loss is the loss of a worker, which was killed, or stopped for longer than its takes.
type loss struct {
	worker  string
	stopped bool
	at      time.Duration
}

// Run runs the demo. When it returns, all processes are gone, and so is every folder unless Options.Keep is set.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Command, err = process.Command(o.Command, Argument); err != nil {
		return nil, err
	}
	e := &engine{o: &o, Stage: &rig.Stage{
		StageOptions: o.StageOptions, Name: tierNamespace, Rota: tierName, Key: slot.KeyName,
		FirstObjects: trial, MostObjects: mostObjects, FillTime: fillTime, Workers: &rig.Fleet{Name: "worker"},
	}}
	err = e.Play(ctx, e.story, func(ctx context.Context) error {
		report, err = e.finish(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return report, nil
}

// other starts a process of Options.Release; where there is none, of this one.
func (e *engine) other() []string {
	if e.o.Release == "" {
		return e.Command
	}
	return []string{e.o.Release, Argument}
}
