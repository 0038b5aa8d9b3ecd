package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/apiservers/front/fronttest"
	"github.com/rota-dev/rota/apiservers/front/haproxy"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// world is a control plane with one static API server and two of a Deployment, and a front before them.
type world struct {
	t      *testing.T
	plane  *controlplane.ControlPlane
	front  *front.Front
	client kubernetes.Interface // of the static server
	deploy [2]*apiServer
	// haproxy runs.
	haproxy *exec.Cmd
	stop    func() // ends the agent
	// credentials is the path of the agent's kubeconfig.
	credentials string
	mu          sync.Mutex
	said        []string // by the agent
	// cut counts servers that were taken out of HAProxy while they were up, with connections or not.
	cut atomic.Int32
}

// apiServer is one of the Deployment: a real kube-apiserver with the flags of the static one.
type apiServer struct {
	address string
	binary  string
	args    []string
	log     *os.File
	client  *kubernetes.Clientset
	cmd     *exec.Cmd
}

const limit = time.Minute

func newWorld(t *testing.T) *world {
	t.Helper()
	needInside(t)
	fronttest.HAProxy(t)
	w := &world{t: t, plane: controlplane.New(t, controlplane.Options{})}
	config := w.plane.Config()
	w.client = kubernetes.NewForConfigOrDie(config)
	for i := range w.deploy {
		w.deploy[i] = w.newServer(i)
	}
	dir := t.TempDir()
	w.front = front.Default()
	w.front.Static = []string{strings.TrimPrefix(config.Host, "https://")}
	w.front.CA = filepath.Join(dir, "ca.crt")
	w.front.Dir, w.front.RunDir = filepath.Join(dir, "etc"), filepath.Join(dir, "run")
	require.NoError(t, errors.Join(os.WriteFile(w.front.CA, config.CAData, 0o600), os.Mkdir(w.front.Dir, 0o700),
		os.Mkdir(w.front.RunDir, 0o700)))
	require.NoError(t, Reach(t.Context(), w.front, 10*time.Second))
	w.credentials = filepath.Join(dir, "agent.conf")
	w.describe(func(*front.Front) {})
	w.useKubeconfig()
	t.Cleanup(w.stopFront)
	return w
}

// describe changes the front, and writes what `rota front` would write.
func (w *world) describe(change func(*front.Front)) {
	w.t.Helper()
	change(w.front)
	files, err := w.front.Files(front.FormFiles, front.DefaultPrograms(front.HAProxy), nil)
	require.NoError(w.t, err)
	for _, f := range files {
		if f.Path == front.HAProxyFile && w.haproxy != nil {
			continue // it is the agent's
		}
		require.NoError(w.t, os.WriteFile(filepath.Join(w.front.Dir, f.Path), f.Text, 0o600))
	}
}

func (w *world) newServer(i int) *apiServer {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.plane.PID("apiserver-0")))
	require.NoError(w.t, err)
	words := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	binary, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", w.plane.PID("apiserver-0")))
	require.NoError(w.t, err)
	ip := fmt.Sprintf("10.0.1.%d", i+1)
	config := w.plane.Config()
	config.Host, config.ServerName = "https://"+ip+":6443", "kubernetes"
	s := &apiServer{address: ip + ":6443", binary: binary, client: kubernetes.NewForConfigOrDie(config)}
	s.args = append(slices.Clone(words[1:]), "--bind-address="+ip, "--secure-port=6443", "--cert-dir="+w.t.TempDir(),
		// So that it says that it shuts down before it does.
		"--shutdown-delay-duration=2s")
	if s.log, err = os.Create(filepath.Join(w.t.TempDir(), "apiserver.log")); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		s.kill()
		if w.t.Failed() {
			text, _ := os.ReadFile(s.log.Name())
			w.t.Logf("end of the log of %s:\n%s", s.address, text[max(0, len(text)-2000):])
		}
		_ = s.log.Close()
	})
	return s
}

func (s *apiServer) start(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command(s.binary, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, controlplane.Spawn(s.cmd))
}

// lingers says why it is not ready, or "".
func (s *apiServer) lingers() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := s.client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return s.address + ": " + err.Error()
	}
	return ""
}

// stallEtcd stops the etcd of all API servers for so long, and in the end until check says "".
func (w *world) stallEtcd(d time.Duration, what string, check func() string) {
	w.t.Helper()
	etcd := w.plane.PID("etcd-0")
	require.NoError(w.t, syscall.Kill(etcd, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(etcd, syscall.SIGCONT) }()
	end := time.Now().Add(d)
	w.until(what, check)
	_ = await.Sleep(w.t.Context(), time.Until(end))
}

func (s *apiServer) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(sig))
}

// kill ends it with SIGKILL.
func (s *apiServer) kill() {
	if s.cmd != nil && s.cmd.Process != nil && s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// startFront starts the agent, and then HAProxy with the agent's file. The other way round it would be reloaded.
func (w *world) startFront() {
	w.t.Helper()
	const begun = "servers known from before"
	before := w.says(begun)
	w.startAgent()
	w.until("the agent has written its file", func() string {
		if w.says(begun) == before {
			return "it has not said so"
		}
		return ""
	})
	w.haproxy = exec.Command(fronttest.HAProxy(w.t), "-W", "-db", "-S", filepath.Join(w.front.RunDir, front.MasterSocket),
		"-f", filepath.Join(w.front.Dir, front.HAProxyFile))
	w.haproxy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out := &lines{log: func(s string) {
		w.t.Log("haproxy:", s)
		if strings.Contains(s, "Server "+front.Backend+"/") && strings.Contains(s, "is going DOWN for maintenance") {
			w.cut.Add(1)
		}
	}}
	w.haproxy.Stdout, w.haproxy.Stderr = out, out
	require.NoError(w.t, controlplane.Spawn(w.haproxy))
}

func (w *world) startAgent() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Dir: w.front.Dir, Kubeconfig: w.credentials, Log: func(format string, args ...any) {
			w.t.Logf("agent: "+format, args...)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.said = append(w.said, fmt.Sprintf(format, args...))
		}})
	}()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the agent: %v", err)
		}
	}
}

// useKubeconfig gives the agent an administrator's credentials.
func (w *world) useKubeconfig() {
	w.t.Helper()
	text, err := os.ReadFile(w.plane.Kubeconfig())
	if err == nil {
		_, err = replace(w.credentials, text)
	}
	require.NoError(w.t, err)
}

// says returns how many lines of the agent have a text.
func (w *world) says(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.said {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (w *world) stopAgent() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// stopFront ends HAProxy and the agent.
func (w *world) stopFront() {
	w.stopAgent()
	if w.haproxy != nil {
		_ = w.haproxy.Process.Signal(syscall.SIGTERM)
		_ = w.haproxy.Wait()
		w.haproxy = nil
	}
}

// row is a server in HAProxy.
type row struct {
	status   string
	sessions int
	weight   int
}

// rows are the servers in HAProxy, by address. Sessions are those of both backends.
func (w *world) rows() (map[string]row, error) {
	text, err := haproxy.Ask(w.t.Context(), filepath.Join(w.front.RunDir, front.AdminSocket), "show stat -1 4 -1")
	if err != nil {
		return nil, err
	}
	all, err := haproxy.Table(text)
	out := map[string]row{}
	for _, r := range all {
		sessions, _ := strconv.Atoi(r["scur"])
		weight, _ := strconv.Atoi(r["uweight"])
		is := out[r["addr"]]
		is.sessions += sessions
		if r["pxname"] == front.Backend {
			is.status, is.weight = r["status"], weight
		}
		out[r["addr"]] = is
	}
	return out, err
}

// until waits until check says "".
func (w *world) until(what string, check func() string) time.Duration {
	w.t.Helper()
	begun := time.Now()
	if err := await.Until(w.t.Context(), 20*time.Millisecond, limit, check); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	return time.Since(begun).Round(time.Millisecond)
}

// rowsAre waits until HAProxy's servers are as check wants them.
func (w *world) rowsAre(what string, check func(map[string]row) bool) time.Duration {
	w.t.Helper()
	return w.until(what, func() string {
		rows, err := w.rows()
		switch {
		case err != nil:
			return err.Error()
		case !check(rows):
			return fmt.Sprint(rows)
		}
		return ""
	})
}

// endpoint is what the EndpointSlice says of a server.
type endpoint struct{ ready, terminating bool }

// publish writes the EndpointSlice of the Deployment's servers, as the controller of EndpointSlices would.
func (w *world) publish(states ...*endpoint) {
	w.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-x", Labels: map[string]string{
			discoveryv1.LabelServiceName: "kube-apiserver", discoveryv1.LabelManagedBy: "test",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](6443)}},
	}
	for i, state := range states {
		if state != nil {
			host, _, _ := strings.Cut(w.deploy[i].address, ":")
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{host},
				Conditions: discoveryv1.EndpointConditions{Ready: &state.ready, Terminating: &state.terminating}})
		}
	}
	all := w.client.DiscoveryV1().EndpointSlices("kube-system")
	_, err := all.Update(w.t.Context(), slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = all.Create(w.t.Context(), slice, metav1.CreateOptions{})
	}
	require.NoError(w.t, err)
}

// lines calls log for each line.
type lines struct {
	mu   sync.Mutex
	rest []byte
	log  func(string)
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.log(string(line))
		l.rest = bytes.Clone(rest)
	}
}
