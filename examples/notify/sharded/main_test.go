package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig/process"
)

const (
	// asReplica makes the test binary run main: it is built with the same modfile as the tests.
	asReplica = "NOTIFY_REPLICA"
	// clockFile names the file that sets the clock of the digest.
	clockFile = "NOTIFY_CLOCK"
)

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) == "" {
		controlplane.Main(m, controlplane.Options{})
	}
	go func() { // ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if file := os.Getenv(clockFile); file != "" {
		now = ahead(file).now
	}
	main()
	os.Exit(0)
}

// workers are those of each replica for each kind. A crash repeats at most one notice of each.
const workers = 2

// replica is a process of the notifier.
type replica struct {
	cmd *exec.Cmd
	log process.Output
}

func startReplica(t *testing.T, file, namespace, pod string, env ...string) *replica {
	t.Helper()
	p := &replica{cmd: exec.Command(os.Args[0], "-kubeconfig", controlplane.For(t).Kubeconfig(), "-config", file,
		"-listen", "127.0.0.1:0", fmt.Sprintf("-workers=%d", workers), "-rota-lease-duration=4500ms")}
	p.cmd.Env = append(os.Environ(), asReplica+"=1", "POD_NAME="+pod, "POD_UID=", "CONTAINER_NAME=",
		"POD_NAMESPACE="+namespace)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s: %v\n%s", pod, p.cmd.ProcessState, &p.log)
		}
	})
	return p
}

// kill is kill -9.
func (p *replica) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

func (p *replica) leave(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAAAA"

// write writes a configuration for the receiver.
func (r *receiver) write(t *testing.T, namespaces ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"secret": secret, "slack": r.url + "/slack\n", "notify.yaml": fmt.Sprintf(`
source: //clusters.example.com/test
kinds:
- {apiVersion: v1, kind: Pod, namespaces: [%[1]s], events: [created, failing, deleted]}
- {apiVersion: v1, kind: ConfigMap, namespaces: [%[1]s], events: [created, changed, deleted]}
- {apiVersion: apps/v1, kind: Deployment, namespaces: [%[1]s], events: [created, changed, failing, deleted]}
- {apiVersion: batch/v1, kind: Job, namespaces: [%[1]s], events: [failing]}
destinations:
- name: audit
  webhook: {url: "%[2]s/webhook", secretFile: %[3]s/secret}
  rate: 200
  burst: 50
  timeout: 20s
  backoff: {min: 100ms, max: 500ms}
- name: ops
  slack: {urlFile: %[3]s/slack}
  events: [failing, deleted]
  rate: 200
  burst: 50
  timeout: 20s
  backoff: {min: 100ms, max: 500ms}
`, strings.Join(namespaces, ", "), r.url, dir)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "notify.yaml")
}

// TestNoneLost has three replicas tell what happens in a rollout, after a kill -9, while their receiver is away, and
// while none of them runs. With SLOW=1 (make check WHAT=slow) there is also nobody who takes connections for a while.
func TestNoneLost(t *testing.T) {
	plane := controlplane.For(t)
	home, away, foreign := controlplane.Namespace(t), controlplane.Namespace(t), controlplane.Namespace(t)
	w := &world{
		t: t, client: kubernetes.NewForConfigOrDie(plane.Config()), home: home, namespace: away,
		want: map[told]bool{}, began: time.Now(),
	}
	r := newReceiver(t)
	file := r.write(t, away, "there-is-none") // two namespaces: all are listed, and others dropped
	var all []*replica
	start := func() *replica {
		all = append(all, startReplica(t, file, home, fmt.Sprintf("notify-%d", len(all))))
		return all[len(all)-1]
	}
	// crash is how many notices one death may repeat. A replica that does not get to its Lease in time counts as dead.
	crash := workers * w.kinds()
	deaths := func() (n int) {
		for _, p := range all {
			n += strings.Count(p.log.String(), "working on nothing until one does")
		}
		return n
	}
	fleet := []*replica{start(), start(), start()}
	w.followed()
	_, err := w.client.CoreV1().ConfigMaps(foreign).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nobody-asked"}}, metav1.CreateOptions{})
	w.must(err)

	w.phase("calm", 6, func() {})
	r.told(w)

	w.phase("rollout", 10, func() {
		for i, old := range fleet {
			fleet[i] = start()
			w.pause(time.Second)
			old.leave(t)
		}
	})
	r.told(w)
	if doubled := r.doubles(); len(doubled) > deaths()*crash {
		t.Errorf("a rollout without failures repeated notices:\n%s", strings.Join(doubled, "\n"))
	}

	// The receiver is slow, so that the replica dies between its answer and the record.
	r.slow(100 * time.Millisecond)
	w.phase("kill", 10, func() {
		w.pause(500 * time.Millisecond)
		fleet[0].kill()
		fleet[0] = start()
	})
	r.slow(0)
	r.told(w)
	afterKill := len(r.doubles())
	if most := (1 + deaths()) * crash; afterKill > most {
		t.Errorf("a kill -9 repeated %d notices, want at most %d:\n%s", afterKill, most, strings.Join(r.doubles(), "\n"))
	}

	r.refuse("1")
	w.phase("503", 6, func() { w.pause(3 * time.Second) })
	r.accept()
	r.told(w)

	if os.Getenv("SLOW") != "" {
		r.down()
		w.phase("connection refused", 6, func() {
			w.pause(time.Second)
			fleet[1].leave(t)
			fleet[1] = start()
			w.pause(time.Second)
		})
		r.up(t)
		r.told(w)
	}
	if n := len(r.doubles()) - afterKill; n > deaths()*crash {
		t.Errorf("outages that took nothing repeated %d notices:\n%s", n, strings.Join(r.doubles(), "\n"))
	}

	const lost = 5
	r.loseAnswers(lost)
	w.phase("lost answers", 6, func() {})
	r.told(w)
	r.repeated(afterKill + lost)
	if n := len(r.doubles()) - afterKill; n < lost || n > lost+deaths()*crash {
		t.Errorf("%d lost answers repeated %d notices, want as many:\n%s", lost, n, strings.Join(r.doubles(), "\n"))
	}

	for _, p := range fleet {
		p.leave(t)
	}
	w.deleteAll()
	fleet = []*replica{start()}
	r.told(w)
	if n := len(r.doubles()) - afterKill; n > lost+deaths()*crash {
		t.Errorf("a restart repeated %d notices:\n%s", n-lost, strings.Join(r.doubles(), "\n"))
	}
	w.recordsAreGone()
	t.Logf("%d notices to audit and ops, %d requests, %d doubles after a kill -9, %d of %d lost answers; "+
		"%d Leases were renewed too late", len(w.want), r.requests(), afterKill, len(r.doubles())-afterKill, lost, deaths())
	if t.Failed() {
		return
	}
	fleet[0].leave(t)
	for _, p := range all {
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, "/slack") {
				t.Errorf("the log has a secret URL: %s", line)
			}
		}
	}
}
