package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// endLimit is how long a process may take to end after SIGINT. The demo judges its run then.
const endLimit = 5 * time.Minute

// process is a child of this test, which ends with it.
type process struct {
	name  string
	cmd   *exec.Cmd
	lines chan string // of its standard output and its standard error
	done  chan struct{}
	err   error

	mu  sync.Mutex
	out bytes.Buffer
}

func start(t *testing.T, name string, command ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(command[0], command[1:]...), lines: make(chan string, 1000), done: make(chan struct{})}
	read, write := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = write, write
	if _, err := p.cmd.StdinPipe(); err != nil { // some end when their standard input does
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		scan := bufio.NewScanner(read)
		for scan.Buffer(nil, 1<<20); scan.Scan(); {
			p.mu.Lock()
			p.out.WriteString(scan.Text() + "\n")
			p.mu.Unlock()
			select {
			case p.lines <- scan.Text():
			default:
			}
		}
	}()
	go func() {
		p.err = p.cmd.Wait()
		_ = write.Close()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.end(t)
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.output())
		}
	})
	return p
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// until returns the first line that has a text.
func (p *process) until(t *testing.T, text string, limit time.Duration) string {
	t.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case line := <-p.lines:
			if strings.Contains(line, text) {
				return line
			}
		case <-p.done:
			t.Fatalf("%s ended before it said %q: %v", p.name, text, p.err)
		case <-late.C:
			t.Fatalf("%s did not say %q in %v", p.name, text, limit)
		}
	}
}

// end sends SIGINT and waits. It may be called again.
func (p *process) end(t *testing.T) error {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.done:
	case <-time.After(endLimit):
		_ = p.cmd.Process.Kill()
		<-p.done
		t.Errorf("%s did not end within %v", p.name, endLimit)
	}
	return p.err
}

// world is an API server, and a rota on it.
type world struct {
	rota, kubeconfig string
	kube, demo       *process
	url              string
}

// setUp builds rota and its demo, and starts `rota-demo --dashboard` on a control plane.
func setUp(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{rota: filepath.Join(dir, "rota"), kubeconfig: filepath.Join(dir, "kubeconfig")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "./cmd/rota", "./cmd/rota-demo")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kube := os.Getenv("ROTA_KUBE")
	if kube == "" {
		kube = "../../bin/rota-kube"
	}
	policy, err := filepath.Abs("../../test/stage/audit-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.kube = start(t, "control plane", kube, "up", "--json", "--audit-policy", policy, "--kubeconfig", w.kubeconfig)
	var plane struct{ AuditLogs []string }
	if err := json.Unmarshal([]byte(w.kube.until(t, "auditLogs", 2*time.Minute)), &plane); err != nil || len(plane.AuditLogs) != 1 {
		t.Fatalf("control plane: %+v, %v", plane, err)
	}
	w.demo = start(t, "demo", w.rota+"-demo", "--dashboard", "--kubeconfig", w.kubeconfig, "--audit-log", plane.AuditLogs[0],
		"--objects", "60", "--rate", "5", "--lease-duration", "6s")
	_, w.url, _ = strings.Cut(w.demo.until(t, "Dashboard: ", 2*time.Minute), "Dashboard: ")
	w.demo.until(t, "yours:", 5*time.Minute)
	return w
}

// json runs a command of rota and decodes what it prints.
func (w *world) json(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, w.rota, append(args, "-o", "json", "--kubeconfig", w.kubeconfig)...)
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}
