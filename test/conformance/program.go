package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Program is a client's program.
type Program struct {
	// Command is started in Dir, with Env beside what the package's comment lists.
	Command []string
	Dir     string
	Env     []string
	// Concurrency is how many keys it can work on at the same time; default 1.
	Concurrency int
	// Length is how long takes last; default 4 s. A program that is slow to start requests needs more, on a machine that
	// is busy.
	Length time.Duration
	// AtOnce is how many checks run at the same time; default 8. A program that needs much of the CPU wants fewer.
	AtOnce int
	// Kills says that the program ends work that does not hear that its take has ended.
	Kills bool
}

// soon is how long the program may take for what it does at once, on a machine that is busy.
const soon = 20 * time.Second

// lab is a tier, and a program that works for it.
type lab struct {
	*trial
	// length is how long takes last, and slack by how much a program may miss a time on a machine that is busy.
	length, slack time.Duration

	tier    *Tier
	dir     string
	cmd     *exec.Cmd
	output  *bytes.Buffer
	exited  chan struct{}
	exitErr error
}

const firstToken, secondToken = "first-secret-token", "second-secret-token"

// newLab starts a tier.
func newLab(t *trial, length time.Duration) *lab {
	server, authority, err := NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	tier, err := NewTier(length, server, firstToken)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{
		trial: t, length: length, slack: 3 * length / 10, tier: tier, dir: t.TempDir(),
		output: &bytes.Buffer{},
	}
	t.Cleanup(func() { l.tier.Close() })
	l.write("ca.crt", authority)
	l.write("token", []byte(firstToken+"\n"))
	l.write("journal", nil)
	return l
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// write replaces a file as the kubelet does: at once.
func (l *lab) write(name string, content []byte) {
	if err := os.WriteFile(l.path(name+".new"), content, 0o600); err != nil {
		l.Fatal(err)
	}
	if err := os.Rename(l.path(name+".new"), l.path(name)); err != nil {
		l.Fatal(err)
	}
}

// run starts the program. It is killed when the check ends. grace replaces the usual one.
func (l *lab) run(p Program, grace ...string) {
	cmd := exec.CommandContext(context.Background(), p.Command[0], p.Command[1:]...) // it is what is tested
	cmd.Dir = p.Dir
	cmd.Env = append(append(os.Environ(), p.Env...),
		"ROTA_DISPATCH_URL="+l.tier.URL(), "ROTA_DISPATCH_TOKEN_FILE="+l.path("token"),
		"ROTA_DISPATCH_CA_FILE="+l.path("ca.crt"), "ROTA_DISPATCH_KINDS="+Kind, "ROTA_DISPATCH_WORKER=conformance",
		"ROTA_DISPATCH_CONCURRENCY="+strconv.Itoa(max(p.Concurrency, 1)), "JOURNAL="+l.path("journal"),
		"ROTA_DISPATCH_GRACE_SECONDS="+append(grace, "20")[0])
	cmd.Stdout, cmd.Stderr = l.output, l.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	exited := make(chan struct{})
	l.cmd, l.exited = cmd, exited
	go func() {
		l.exitErr = cmd.Wait()
		close(exited)
	}()
	l.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its own process group: children of shells, too
		<-exited
		if l.Failed() && l.cmd == cmd {
			l.Logf("journal:\n%s\nrequests:\n%s\noutput of the program:\n%s", strings.Join(l.journal(), "\n"), l.requests(),
				l.output)
		}
	})
}

// requests prints what the client sent.
func (l *lab) requests() string {
	var out strings.Builder
	for _, r := range l.tier.Requests() {
		fmt.Fprintf(&out, "%s %s %d %.150s\n", r.At.Format("05.000"), r.Path, r.Status, r.Body)
	}
	return out.String()
}

// stop asks the program to end, and waits until it has.
func (l *lab) stop(within time.Duration) {
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		l.Fatal(err)
	}
	select {
	case <-l.exited:
	case <-time.After(within):
		l.Fatalf("the program still runs %v after SIGTERM", within)
	}
	if l.exitErr != nil && !errors.Is(l.exitErr, exec.ErrWaitDelay) {
		l.Errorf("the program ended with %v, want 0", l.exitErr)
	}
}

// journal returns the lines of the journal.
func (l *lab) journal() []string {
	f, err := os.Open(l.path("journal"))
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(f)
	if err != nil {
		l.Fatal(err)
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	if len(whole) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(whole), "\n"), "\n")
}

// count is how many lines of the journal begin with a prefix.
func (l *lab) count(prefix string) (n int) {
	for _, line := range l.journal() {
		if line == prefix || strings.HasPrefix(line, prefix+" ") {
			n++
		}
	}
	return n
}

// await waits until there are so many lines in the journal, and returns when it saw them.
func (l *lab) await(within time.Duration, prefix string, n int) time.Time {
	l.until(within, fmt.Sprintf("%d lines %q in the journal", n, prefix), func() bool { return l.count(prefix) >= n })
	return time.Now()
}

// until waits for a condition.
func (l *lab) until(within time.Duration, what string, is func() bool) {
	deadline := time.Now().Add(within)
	for !is() {
		if time.Now().After(deadline) {
			l.Fatalf("no %s within %v", what, within)
		}
		select {
		case <-l.exited:
			if !is() {
				l.Fatalf("the program ended (%v), and there are no %s", l.exitErr, what)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// idle waits until nothing is taken or waits for a worker.
func (l *lab) idle(within time.Duration) {
	l.until(within, "idle queue", func() bool {
		stats, _ := l.tier.Stats()
		return stats.Ready+stats.Taken == 0
	})
}
