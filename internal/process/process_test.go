package process_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/process"
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
		fmt.Println("you said", scan.Text())
	}
}

func start(t *testing.T) (*process.Process, chan string) {
	t.Helper()
	lines := make(chan string, 10)
	p, err := process.Start(process.Options{
		Name: "child", Command: []string{os.Args[0]}, Env: []string{childEnv + "=1"},
		Log: filepath.Join(t.TempDir(), "log"), Line: func(s string) { lines <- s },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Say("hello"); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-lines:
		if line != "you said hello" {
			t.Fatalf("it printed %q", line)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no answer")
	}
	return p, lines
}

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		end     func(*process.Process) error
		trouble bool
	}{
		{"killed as wanted", func(p *process.Process) error { return p.End(syscall.SIGKILL) }, false},
		{"killed by somebody", func(p *process.Process) error { return p.Signal(syscall.SIGKILL) }, true},
		{"failed", func(p *process.Process) error { return p.Say("fail") }, true},
		{"dies of SIGTERM", func(p *process.Process) error { return p.End(syscall.SIGTERM) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := start(t)
			if !p.Running() || p.Lingers() == "" || p.Trouble() != nil {
				t.Fatalf("running %t, lingers %q, trouble %v", p.Running(), p.Lingers(), p.Trouble())
			}
			if err := c.end(p); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			if _, ended := p.Ended(); !ended || p.Running() || p.Lingers() != "" {
				t.Errorf("ended %t, running %t, lingers %q", ended, p.Running(), p.Lingers())
			}
			err := p.Trouble()
			if (err != nil) != c.trouble {
				t.Errorf("trouble %v, want some: %t", err, c.trouble)
			}
			if err != nil && !strings.Contains(err.Error(), "the child runs") {
				t.Errorf("%v does not show the log", err)
			}
		})
	}
}
