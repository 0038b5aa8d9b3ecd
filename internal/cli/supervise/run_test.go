package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(sharedEnv); socket != "" {
		fmt.Fprintln(os.Stderr, runShared(socket, os.Args[1], os.Args[2]))
		os.Exit(1)
	}
	if os.Getenv(parent) != "" {
		p := start(line{args: []string{"sh", "-c", "echo $$; exec sleep 1000"}}, os.Stdout, os.Stderr)
		<-p.done()
		return
	}
	controlplane.Main(m, controlplane.Options{})
}

// parent is the variable that makes this test's binary start a process and wait for it.
const parent = "ROTA_TEST_PARENT"

// When `rota run` dies, its process is killed.
func TestProcessesDieWithTheirParent(t *testing.T) {
	if err := adopt(); err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), parent+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for end := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return // it is gone, or waits to be reaped
		}
		if time.Now().After(end) {
			t.Fatalf("process %d lives on", pid)
		}
	}
}

// exclusive fails if another process has the ordinal, or one of the namespaces that begin with a prefix.
const exclusive = `IFS=,
trap 'for n in $mine; do rm -r "$1/$n"; done; exit 0' TERM
for n in $0; do
	case $n in "$3"*) ;; *) continue ;; esac
	mkdir "$1/$n" || { echo "$n" >> "$1/twice"; exit 1; }
	touch "$1/$n/$2"
	mine=$n,$mine
done
while :; do sleep 0.02; done`

// Members that come and go have each ordinal once.
func TestMembersShareOrdinals(t *testing.T) {
	t.Parallel()
	joinAndLeave(t, slot.KeyName, nil, func(dir, pod string) []string {
		return []string{"sh", "-c", exclusive, "{{.Ordinal}}", dir, pod, ""}
	})
}

// Members that come and go have each namespace once.
func TestMembersShareNamespaces(t *testing.T) {
	t.Parallel()
	client, prefix := kubernetes.NewForConfigOrDie(controlplane.For(t).Config()), controlplane.Namespace(t)
	var covered slot.Set
	for i := 0; covered.Len() < 4; i++ { // one namespace in each slot
		name := fmt.Sprintf("%s-%d", prefix, i)
		if n := slot.Count(4).Of(slot.KeyNamespace.Hash(name, "", "")); !covered.Has(n) {
			covered.Add(n)
			_, err := client.CoreV1().Namespaces().Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	joinAndLeave(t, slot.KeyNamespace, nil, func(dir, pod string) []string {
		return []string{"sh", "-c", exclusive, "{{.Namespaces}}", dir, pod, prefix + "-"}
	})
}

// Programs of members that come and go work on each slot once, and none is restarted.
func TestMembersWithLiveShares(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	kinds := []schema.GroupKind{{Kind: "ConfigMap"}}
	dir := joinAndLeave(t, slot.KeyName, kinds, func(dir, pod string) []string {
		return []string{sharedEnv + "={{.Share}}", self, dir, pod}
	})
	starts, err := os.ReadFile(filepath.Join(dir, "starts"))
	require.NoError(t, err)
	if string(starts) != "abc" {
		t.Errorf("the programs of these members were started: %s", starts)
	}
}

// sharedEnv is the variable that makes this test's binary a program with a live share.
const sharedEnv = "ROTA_TEST_SHARE"

// runShared takes slots as exclusive takes ordinals.
func runShared(socket, dir, pod string) error {
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	if err := note(filepath.Join(dir, "starts"), pod); err != nil {
		return err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return err
		}
		if m.Slot == nil {
			continue
		}
		mine := filepath.Join(dir, m.Slot.String())
		switch m.Type {
		case msgOpen:
			if err := os.Mkdir(mine, 0o700); err != nil {
				return errors.Join(err, note(filepath.Join(dir, "twice"), m.Slot.String()+"\n"))
			}
			if err := note(filepath.Join(mine, pod), ""); err != nil {
				return err
			}
		case msgDrain:
			if err := os.RemoveAll(mine); err != nil {
				return err
			}
		case msgLoad:
			if m.Selectors["ConfigMap"] == "" {
				return fmt.Errorf("no selector in %s", lines.Text())
			}
		}
		if kind := answerTo[m.Type]; kind != "" {
			if _, err := conn.Write(encode(answer{Type: kind, Slot: *m.Slot, Seq: m.Seq})); err != nil {
				return err
			}
		}
	}
	return errors.New("the connection has ended")
}

// note appends to a file.
func note(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// joinAndLeave has members come and go whose processes have a directory for each slot, with a file of the member's name.
func joinAndLeave(t *testing.T, key slot.Key, kinds []schema.GroupKind, args func(dir, pod string) []string,
) (dir string) {
	t.Helper()
	plane, namespace := controlplane.For(t), controlplane.Namespace(t)
	dir = t.TempDir()
	start := func(pod string) (leave func()) {
		command, err := ParseCommand(args(dir, pod))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			code, err := Run(ctx, plane.Config(), Options{
				Rota: rota.Options{Name: "run", Namespace: namespace, Identity: rota.Identity{Pod: pod}, Slots: 4,
					Key: key, FenceDelay: 5 * time.Second, Logger: logr.Discard()},
				Kinds: kinds, Command: command, StopTimeout: hang, Out: os.Stdout, Err: os.Stderr,
			})
			if err == nil && code != 0 {
				err = fmt.Errorf("exit code %d", code)
			}
			done <- err
		}()
		left := false
		leave = func() {
			if left {
				return
			}
			left = true
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("%s: %v", pod, err)
				}
			case <-time.After(hang):
				t.Errorf("%s does not end", pod)
			}
		}
		t.Cleanup(leave)
		return leave
	}
	// running waits until the processes have so many slots, and each of the members has one.
	running := func(want int, members ...string) {
		t.Helper()
		for end := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
			all, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			require.NoError(t, err)
			of := map[string]bool{}
			for _, path := range all {
				of[filepath.Base(path)] = true
			}
			if len(all) == want && !slices.ContainsFunc(members, func(m string) bool { return !of[m] }) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("these processes run: %v", all)
			}
		}
	}
	a := start("a")
	running(4, "a")
	b := start("b")
	running(4, "a", "b")
	c := start("c")
	running(4, "a", "b", "c")
	a() // its processes have exited when it returns, and the others have its slots
	running(4, "b", "c")
	b()
	running(4, "c")
	c()
	running(0)
	if twice, err := os.ReadFile(filepath.Join(dir, "twice")); err == nil {
		t.Errorf("slots on which two processes worked at once: %s", strings.Fields(string(twice)))
	}
	return dir
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c, err := ParseCommand([]string{"prog"})
	require.NoError(t, err)
	o := Options{Command: c, StopTimeout: 1}
	_, err = Run(t.Context(), nil, o)
	require.ErrorSays(t, err, "must be positive")
	o.Rota.FenceDelay = 1
	_, err = Run(t.Context(), nil, o)
	require.ErrorSays(t, err, "every process would work on all objects")
	o.Rota.Key = slot.KeyUID
	_, err = Run(t.Context(), nil, o)
	require.ErrorSays(t, err, "use Name or Namespace")
}
