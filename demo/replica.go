package demo

import (
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/process"
)

// replica is a process of the operator. Its fields do not change after start.
type replica struct {
	*process.Process
	pod, build string
	stock      bool
	// mayEnd is true while it may end by itself: see Show.comes.
	mayEnd atomic.Bool

	reading sync.Mutex
	journal *journal.Reader
}

func startReplica(command []string, dir, pod string, c operatorConfig) (*replica, error) {
	c.Journal, c.Traffic = filepath.Join(dir, pod+".journal"), filepath.Join(dir, pod+".traffic")
	p, err := process.Start(process.Options{
		Name: "replica " + pod, Command: command, Log: filepath.Join(dir, pod+".log"), Variable: EnvOperator, Config: c,
		Env: []string{"POD_NAME=" + pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE=" + Namespace},
	})
	if err != nil {
		return nil, err
	}
	return &replica{
		Process: p, pod: pod, build: c.Build, stock: c.Stock, journal: journal.NewReader(c.Journal, pod),
	}, nil
}

// reconciles returns those in the journal so far.
func (p *replica) reconciles() ([]journal.Reconcile, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	list, err := p.journal.Read()
	return slices.Clone(list), err
}
