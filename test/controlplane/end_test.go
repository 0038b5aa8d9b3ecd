package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/controlplane/assets"
	"github.com/rota-dev/rota/test/require"
)

// A footprint is what must be gone after the end of a control plane.
type footprint struct {
	Supervisor int
	Servers    map[string]int
	Dir        string
}

func footprintOf(c *ControlPlane) footprint {
	return footprint{c.child.cmd.Process.Pid, c.PIDs(), c.Dir()}
}

func (f footprint) left() error {
	var errs []error
	for name, pid := range f.Servers {
		if alive(pid) {
			errs = append(errs, fmt.Errorf("%s still runs (%d)", name, pid))
		}
	}
	if alive(f.Supervisor) {
		errs = append(errs, fmt.Errorf("the supervisor still runs (%d)", f.Supervisor))
	}
	if _, err := os.Stat(f.Dir); err == nil {
		errs = append(errs, fmt.Errorf("%s still exists", f.Dir))
	}
	return errors.Join(errs...)
}

func (f footprint) mustBeGone(t *testing.T) {
	t.Helper()
	if len(f.Servers) < 2 || f.Dir == "" {
		t.Fatalf("not a footprint: %+v", f)
	}
	if err := f.left(); err != nil {
		t.Error(err)
	}
}

// alive reports whether a process runs; one that is dead and not waited for, as orphans are where nobody adopts them,
// does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(after, []byte("Z"))
}

// TestNothingIsLeft of a control plane that is stopped while a server hangs. Ends by signals are for SLOW=1: the tests
// of killed parents and of Ctrl-C at a terminal cover most of them.
func TestNothingIsLeft(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(*testing.T, *ControlPlane)
	}{
		{"a server hangs", func(t *testing.T, c *ControlPlane) {
			syscall.Kill(c.PID("apiserver-0"), syscall.SIGSTOP)
			if err := errors.Join(c.Stop(), c.Stop()); err != nil {
				t.Error(err)
			}
		}},
		{"SIGINT to the whole group", func(_ *testing.T, c *ControlPlane) {
			syscall.Kill(-c.child.cmd.Process.Pid, syscall.SIGINT)
		}},
		{"SIGTERM", func(_ *testing.T, c *ControlPlane) {
			syscall.Kill(c.child.cmd.Process.Pid, syscall.SIGTERM)
		}},
		// What a parent that is killed looks like; only the first may count.
		{"end of input and then signals", func(_ *testing.T, c *ControlPlane) {
			c.child.stdin.Close()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for range 100 {
				<-tick.C
				syscall.Kill(c.child.cmd.Process.Pid, syscall.SIGTERM)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if os.Getenv("SLOW") == "" && tc.name != "a server hangs" {
				t.Skip("only with SLOW=1: make check WHAT=slow")
			}
			c, err := Start(t.Context(), Options{})
			require.NoError(t, err)
			defer c.Stop()
			f := footprintOf(c)
			begin := time.Now()
			tc.end(t, c)
			require.Receive(t, c.Done(), 20*time.Second, "it does not end")
			t.Logf("ended after %s", time.Since(begin))
			f.mustBeGone(t)
		})
	}
}

// TestKilledSupervisorAndParent: the servers of a killed supervisor die with it, and its folder goes with the next
// start. Nothing is left of a control plane whose parent is killed.
func TestKilledSupervisorAndParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the servers of a killed supervisor")
	}
	t.Parallel()
	_, first := startHelper(t)
	require.NoError(t, syscall.Kill(first.Supervisor, syscall.SIGKILL))
	require.Eventually(t, 20*time.Second, func() error {
		// A parallel test may have swept the folder already.
		return footprint{first.Supervisor, first.Servers, "/nowhere"}.left()
	})
	parent, second := startHelper(t)
	first.mustBeGone(t)
	if err := second.left(); err == nil || !strings.Contains(err.Error(), second.Dir) {
		t.Errorf("the new control plane is not there: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	parent.Wait()
	require.Eventually(t, 20*time.Second, second.left)
}

// startHelper has another process start a control plane.
func startHelper(t *testing.T) (*exec.Cmd, footprint) {
	t.Helper()
	skipIfShort(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envHelper+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	var f footprint
	if err := json.NewDecoder(stdout).Decode(&f); err != nil {
		t.Fatalf("the helper did not start a control plane: %v", err)
	}
	return cmd, f
}

// upCommand is `rota-kube up`, which this program is under that name.
func upCommand(t *testing.T, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, append([]string{"up"}, args...)...)
	cmd.Args[0] = supervisorName
	return cmd
}

// TestUpForPeople: what a person at a terminal sees, and Ctrl-C.
func TestUpForPeople(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	tmp := t.TempDir()
	config := filepath.Join(tmp, "my kubeconfig")
	cmd := upCommand(t, "--dir", filepath.Join(tmp, "data"), "--kubeconfig", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, Spawn(cmd))
	defer cmd.Process.Kill()
	var text strings.Builder
	for scan := bufio.NewScanner(stdout); scan.Scan(); {
		text.WriteString(scan.Text() + "\n")
		if strings.Contains(scan.Text(), "Ctrl-C") {
			break
		}
	}
	// Quoted for the shell, as the path has a space in it.
	if !regexp.MustCompile(`(?m)^  export KUBECONFIG='.*my kubeconfig'$`).MatchString(text.String()) {
		t.Errorf("no hint how to use it:\n%s", text.String())
	}
	if out, err := kubectl(t, config, "get", "--raw", "/readyz"); err != nil || out != "ok" {
		t.Errorf("kubectl get --raw /readyz: %v: %s", err, out)
	}
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestGivingUpLeavesNothing: a start that is cancelled halfway cleans up, too.
func TestGivingUpLeavesNothing(t *testing.T) {
	skipIfShort(t)
	_, err := assets.Find(t.Context(), os.Stderr) // what has to be built is built before
	require.NoError(t, err)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	if c, err := Start(ctx, Options{}); err == nil {
		c.Stop()
		t.Skip("ready too soon to give up")
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want a deadline exceeded", err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestUpRefusesWhatIsNotItsOwn: folders and kubeconfigs of the user survive.
func TestUpRefusesWhatIsNotItsOwn(t *testing.T) {
	skipIfShort(t)
	for _, tc := range []struct{ flag, file, content, want string }{
		{"--dir", "notes/today", "precious", "not empty"},
		{"--kubeconfig", "config", "apiVersion: v1\nkind: Config\ncurrent-context: production\n", "something else"},
		{"--kubeconfig", "config", "no kubeconfig: [", "no kubeconfig"},
	} {
		t.Run(tc.flag+" "+tc.want, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			file := filepath.Join(tmp, tc.file)
			os.MkdirAll(filepath.Dir(file), 0o755)
			require.NoError(t, os.WriteFile(file, []byte(tc.content), 0o644))
			arg := filepath.Join(tmp, strings.Split(tc.file, "/")[0])
			out, err := upCommand(t, tc.flag, arg).CombinedOutput()
			if err == nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v: %s\nwant a refusal that says %q", err, out, tc.want)
			}
			if now, err := os.ReadFile(file); err != nil || string(now) != tc.content {
				t.Errorf("the file is now %q, %v", now, err)
			}
		})
	}
}
