package footprint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rota-dev/rota/internal/controlplane"
	"github.com/rota-dev/rota/internal/process"
)

// replica is a process that runs the operator.
type replica struct {
	pod, role, address, logPath string

	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when it has ended
}

// startReplica returns when the process answers, which is before it has begun to work.
func startReplica(command []string, dir, pod, role string, c operatorConfig) (*replica, error) {
	env, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	r := &replica{pod: pod, role: role, logPath: filepath.Join(dir, pod+".log"), done: make(chan struct{})}
	log, err := os.Create(r.logPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()               // the process has its own
	r.cmd = exec.Command(command[0], command[1:]...) //nolint:noctx // it ends with its standard input
	// One build for all: a member whose build is that of a leaver would be something else.
	r.cmd.Env = append(os.Environ(), EnvOperator+"="+string(env), "POD_NAME="+pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE="+operatorNamespace)
	r.cmd.Stderr = log
	r.cmd.SysProcAttr = process.Attributes()
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := controlplane.Spawn(r.cmd); err != nil {
		return nil, fmt.Errorf("start replica %s: %w", pod, err)
	}
	line := make(chan string, 1)
	go func() {
		scan := bufio.NewScanner(stdout)
		if scan.Scan() {
			line <- scan.Text()
		}
		for scan.Scan() { // so that it never blocks
		}
		_ = r.cmd.Wait()
		close(r.done)
	}()
	select {
	case r.address = <-line:
		return r, nil
	case <-r.done:
		return nil, r.ended()
	case <-time.After(30 * time.Second):
		r.end()
		return nil, r.ended()
	}
}

// ended says that the process is gone, and its last words.
func (r *replica) ended() error {
	text, _ := os.ReadFile(r.logPath)
	text = text[max(0, len(text)-4000):]
	return fmt.Errorf("replica %s ended (%v):\n%s", r.pod, r.cmd.ProcessState, bytes.TrimSpace(text))
}

// end ends the process at once, as a crash would.
func (r *replica) end() {
	_ = r.stdin.Close()
	select {
	case <-r.done:
	case <-time.After(5 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.done
	}
}

// ask gets what the process tells at a path into out.
func (r *replica) ask(ctx context.Context, method, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.address+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		select {
		case <-r.done:
			return r.ended()
		default:
			return fmt.Errorf("replica %s: %w", r.pod, err)
		}
	}
	err = json.NewDecoder(resp.Body).Decode(out)
	return errors.Join(err, resp.Body.Close())
}

func (r *replica) reading(ctx context.Context) (out reading, err error) {
	err = r.ask(ctx, http.MethodGet, "/reading", &out)
	return out, err
}

func (r *replica) resident(ctx context.Context) (out resident, err error) {
	err = r.ask(ctx, http.MethodGet, "/resident", &out)
	return out, err
}

func (r *replica) seen(ctx context.Context) (out map[string]time.Duration, err error) {
	err = r.ask(ctx, http.MethodGet, "/seen", &out)
	return out, err
}

// reset begins a new peak of the heap.
func (r *replica) reset(ctx context.Context) error {
	return r.ask(ctx, http.MethodPost, "/reset", &struct{}{})
}

// since returns what a process did between two readings.
func (now reading) since(then reading) Phase {
	p := Phase{
		CPUSeconds: now.CPUSeconds - then.CPUSeconds, Bytes: now.Bytes - then.Bytes, Reconciles: now.Reconciles - then.Reconciles,
		PeakHeap: now.PeakHeap, Requests: map[string]int{}, Received: map[string]int{},
	}
	for k, n := range now.Requests {
		if n -= then.Requests[k]; n > 0 {
			p.Requests[k] = n
		}
	}
	for k, n := range now.Received {
		p.Received[k] = n - then.Received[k]
	}
	return p
}
