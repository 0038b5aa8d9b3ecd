package supervisor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is one run of a server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended; then cmd.ProcessState says how
}

// Spawn starts a command from one thread that never ends. On Linux a child can ask for a signal when its parent dies,
// and "parent" means the thread that started it; Go ends threads at will. It may be called concurrently.
func Spawn(cmd *exec.Cmd) error { return spawner()(cmd) }

var spawner = sync.OnceValue(func() func(*exec.Cmd) error {
	type request struct {
		cmd    *exec.Cmd
		result chan error
	}
	requests := make(chan request)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return func(cmd *exec.Cmd) error {
		r := request{cmd, make(chan error)}
		requests <- r
		return <-r.result
	}
})

// startProcess runs a program with args and appends its output to the file at logPath, and to echo if that is not nil.
func startProcess(program string, args []string, logPath string, echo io.Writer) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	var out io.Writer = log
	if echo != nil {
		out = io.MultiWriter(log, echo)
	}
	cmd := exec.Command(program, args...) //nolint:noctx // the supervisor ends it
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = childEnv(os.Environ())
	cmd.SysProcAttr = childAttr()
	if err := Spawn(cmd); err != nil {
		_ = log.Close()
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		_ = log.Close()
		close(p.done)
	}()
	return p, nil
}

// stop sends SIGTERM and, after grace, SIGKILL, and returns when it has ended.
func (p *process) stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// childEnv drops etcd's own variables, which would override our flags.
func childEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "ETCD_") {
			out = append(out, kv)
		}
	}
	return out
}

// tail returns the last n lines of the file at path.
func tail(path string, n int) string {
	const most = 64 << 10
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}
