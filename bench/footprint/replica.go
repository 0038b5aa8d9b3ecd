package footprint

import (
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/rota-dev/rota/test/process"
)

// replica is a process that runs the operator.
type replica struct {
	*process.Process
	role string
}

// startReplica returns when the process answers. The replica has not begun to work then.
func startReplica(ctx context.Context, command []string, dir, pod string, c operatorConfig) (*replica, error) {
	// All replicas have the same build: Rota treats a member whose build is that of a leaver in a special way.
	p, err := process.Start(process.Options{
		Name: "replica " + pod, Command: command, Log: filepath.Join(dir, pod+".log"), Answers: true,
		Variable: EnvOperator, Config: c,
		Env: []string{"POD_NAME=" + pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE=" + operatorNamespace},
	})
	if err != nil {
		return nil, err
	}
	r := &replica{p, roleMember}
	if _, err := r.reading(ctx); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// ask asks a question and decodes the answer into out.
func (r *replica) ask(ctx context.Context, question string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := r.Ask(ctx, question, question)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), out)
}

func (r *replica) reading(ctx context.Context) (out reading, err error) {
	err = r.ask(ctx, askReading, &out)
	return out, err
}

func (r *replica) resident(ctx context.Context) (out resident, err error) {
	err = r.ask(ctx, askResident, &out)
	return out, err
}

func (r *replica) seen(ctx context.Context) (out map[string]time.Duration, err error) {
	err = r.ask(ctx, askSeen, &out)
	return out, err
}

func (r *replica) reset(ctx context.Context) error { return r.ask(ctx, askReset, &struct{}{}) }

// since returns what a process did between two readings.
func (now reading) since(then reading) Phase {
	did := now.Counts.Since(then.Counts)
	p := Phase{
		CPUSeconds: did.CPUSeconds, Bytes: did.Bytes, Reconciles: now.Reconciles - then.Reconciles, PeakHeap: did.PeakHeap,
		Requests: did.Requests, Received: map[string]int{},
	}
	for k, n := range now.Received {
		p.Received[k] = n - then.Received[k]
	}
	return p
}
