package fence_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// memberEnv tells this binary to be a member, and what it needs for it.
const memberEnv = "FENCE_TEST_MEMBER"

type memberConfig struct {
	Host, Token, Namespace, Pod, PodUID string
	CA                                  []byte
}

// Members write to objects of these names.
const (
	victim = "victim"
	worked = "worked-"
)

// memberMain is a member. It writes to the objects worked-…, again and again, as a reconciler should. Its reconciles of the
// victim never end: they write to it all the time, with a client that asks neither gate nor deadline. It prints what became of
// each write.
func memberMain() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var c memberConfig
	check := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	check(json.Unmarshal([]byte(os.Getenv(memberEnv)), &c))
	ctrl.SetLogger(logr.Discard())
	cfg := &rest.Config{Host: c.Host, BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}, QPS: -1}
	r, err := rota.New(cfg, rota.Options{
		Name: rotaName, Namespace: c.Namespace, Identity: rota.Identity{Pod: c.Pod, PodUID: c.PodUID},
		LeaseDuration: 3 * time.Second, RetryPeriod: 300 * time.Millisecond,
	})
	check(err)
	mgr, err := ctrlrt.NewManager(cfg, r, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{c.Namespace: {}}},
	})
	check(err)
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(c.Namespace)
	check(ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:%q}}`, c.Pod, time.Now()))
			if strings.HasPrefix(req.Name, worked) {
				printOutcome(mgr.GetClient().Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}, patch))
				return reconcile.Result{RequeueAfter: 50 * time.Millisecond}, nil
			}
			for req.Name == victim {
				_, err := maps.Patch(context.Background(), victim, patch.Type(), must(patch.Data(nil)), metav1.PatchOptions{})
				printOutcome(err)
				time.Sleep(5 * time.Millisecond)
			}
			return reconcile.Result{}, nil
		})))
	err = mgr.Start(ctrl.SetupSignalHandler())
	fmt.Println("ended", err)
	if err != nil {
		select {} // the reconcile goes on
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func printOutcome(err error) {
	switch {
	case err == nil:
		fmt.Println("done")
	case refused(err):
		fmt.Println("refused", strings.ReplaceAll(err.Error(), "\n", " "))
	default:
		fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

// process is a member in a process of its own.
type process struct {
	*exec.Cmd
	mu    sync.Mutex
	lines []string
}

func (s *site) process(name string) *process {
	s.Helper()
	pod := s.pod(name)
	cfg := s.as(pod)
	text, err := json.Marshal(memberConfig{cfg.Host, cfg.BearerToken, s.namespace, name, string(pod.UID), cfg.CAData})
	require.NoError(s, err)
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), memberEnv+"="+string(text))
	out, errOut := p.StdoutPipe()
	_, errIn := p.StdinPipe() // it ends when this process does
	require.NoError(s, errors.Join(errOut, errIn))
	require.NoError(s, p.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, scan.Text())
			p.mu.Unlock()
		}
	}()
	s.Cleanup(func() {
		_ = p.Process.Kill()
		<-read
		_ = p.Wait()
	})
	return p
}

// since returns what it printed after its first n lines.
func (p *process) since(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines[n:])
}

func (p *process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, p.Process.Signal(signal))
}

// R2, R7: a process that was stopped in the middle of a reconcile is expelled. It wakes up and writes at once, before it looks
// at any clock: not one of these writes is admitted, and those of the new owner are.
func TestR07StoppedProcessWakesUp(t *testing.T) {
	controlplane.Essential(t)
	s := newSite(t, controlplane.For(t))
	s.members() // so that the fence can be seen to work
	s.install()
	require.NoError(t, s.admin.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), rotaName, metav1.DeleteOptions{}))
	maps := s.admin.CoreV1().ConfigMaps(s.namespace)
	_, err := maps.Create(t.Context(), configMap(victim), metav1.CreateOptions{})
	require.NoError(t, err)
	a := s.process("web-0")
	require.Eventually(t, 30*time.Second, wants(a, 0, "done"))
	b := s.process("web-1")
	require.Eventually(t, 30*time.Second, s.tableHas("web-0", "web-1"))

	a.signal(t, syscall.SIGSTOP)
	require.Eventually(t, 30*time.Second, s.tableHas("web-1"))
	require.Eventually(t, 30*time.Second, wants(b, 0, "done"))
	before := len(a.since(0))
	a.signal(t, syscall.SIGCONT)
	require.Eventually(t, 30*time.Second, wants(a, before, "refused"))
	require.Eventually(t, 30*time.Second, func() error {
		if lines := a.since(before); len(lines) < 20 {
			return fmt.Errorf("%d writes since it woke up", len(lines))
		}
		return nil
	})
	// One that was sent before it was stopped may be answered only now.
	if lines := a.since(before); slices.Contains(lines[1:], "done") {
		t.Errorf("after it woke up: %q, want refusals only", lines)
	}
	if lines := b.since(0); contains(lines, "refused") {
		t.Errorf("the new owner: %q, want no refusal", lines)
	}
}

// R9: of members that join, work and leave under a fence, no write is refused.
func TestR09RolloutUnderAFence(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	s.members()
	s.install()
	maps := s.admin.CoreV1().ConfigMaps(s.namespace)
	require.NoError(t, maps.Delete(t.Context(), rotaName, metav1.DeleteOptions{}))
	for i := range 20 {
		_, err := maps.Create(t.Context(), configMap(fmt.Sprint(worked, i)), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	var all []*process
	for i := range 3 {
		p := s.process(fmt.Sprintf("web-%d", i))
		all = append(all, p)
		require.Eventually(t, 30*time.Second, wants(p, 0, "done"))
		if i > 0 {
			all[i-1].signal(t, syscall.SIGTERM)
			require.Eventually(t, 30*time.Second, wants(all[i-1], 0, "ended <nil>"))
		}
	}
	for i, p := range all {
		if lines := p.since(0); contains(lines, "refused") {
			t.Errorf("member %d: %q, want no refusal", i, lines)
		}
	}
}

func wants(p *process, from int, line string) func() error {
	return func() error {
		if lines := p.since(from); !contains(lines, line) {
			return fmt.Errorf("it printed %q, want %q", lines, line)
		}
		return nil
	}
}

// tableHas wants these Pods as members of the table.
func (s *site) tableHas(pods ...string) func() error {
	return func() error {
		cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(s.Context(), rotaName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now, err := table.Decode(cm.Data)
		if err != nil {
			return err
		}
		var got []string
		for _, m := range now.Members {
			got = append(got, m.Pod)
		}
		if !slices.Equal(got, pods) {
			return fmt.Errorf("members %q, want %q", got, pods)
		}
		return nil
	}
}
