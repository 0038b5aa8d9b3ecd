package process_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/process"
)

const childEnv = "PROCESS_TEST_CHILD"

// The child says back what it is told, and ends with status 3 when it is told to fail.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "the child runs")
	for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
		if scan.Text() == "fail" {
			os.Exit(3)
		}
		fmt.Println(scan.Text()+":", "you said it")
	}
}

func start(t *testing.T) *process.Process {
	t.Helper()
	p, err := process.Start(process.Options{
		Name: "child", Command: []string{os.Args[0]}, Variable: childEnv, Config: 1,
		Log: filepath.Join(t.TempDir(), "log"), Answers: true,
	})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, p.Say("first"))
	if answer, err := p.Ask(ctx, "second", "second:"); err != nil || answer != "you said it" {
		t.Fatalf("it answers %q, %v", answer, err)
	}
	return p
}

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		end     func(*process.Process) error
		failure bool
	}{
		{"killed as wanted", func(p *process.Process) error { return p.End(syscall.SIGKILL) }, false},
		{"killed by somebody", func(p *process.Process) error { return p.Signal(syscall.SIGKILL) }, true},
		{"failed", func(p *process.Process) error { return p.Say("fail") }, true},
		{"dies of SIGTERM", func(p *process.Process) error { return p.End(syscall.SIGTERM) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t)
			if !p.Running() || p.Lingers() == "" || p.Failure() != nil {
				t.Fatalf("running %t, lingers %q, failure %v", p.Running(), p.Lingers(), p.Failure())
			}
			require.NoError(t, c.end(p))
			<-p.Done()
			if _, ended := p.Ended(); !ended || p.Running() || p.Lingers() != "" {
				t.Errorf("ended %t, running %t, lingers %q", ended, p.Running(), p.Lingers())
			}
			err := p.Failure()
			if (err != nil) != c.failure {
				t.Errorf("failure %v, want one: %t", err, c.failure)
			}
			if _, askErr := p.Ask(t.Context(), "third", "third:"); askErr == nil {
				t.Error("it answers after its end")
			}
			if err != nil && !strings.Contains(err.Error(), "the child runs") {
				t.Errorf("%v does not show the log", err)
			}
			if err != nil {
				told(t, err, c.name == "killed by somebody")
			}
		})
	}
}

// told checks that a failure is told line by line, and in one line where nobody asks for more or the log cannot help.
func told(t *testing.T, err error, killed bool) {
	t.Helper()
	var lines []string
	process.Tell(err, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	if strings.Contains(strings.Join(lines, ""), "\n") || !strings.HasPrefix(lines[0], "child ended (") {
		t.Errorf("told %q", lines)
	}
	if shown := slices.Contains(lines, "  | the child runs"); shown == killed {
		t.Errorf("killed: %t, told %q", killed, lines)
	}
}
