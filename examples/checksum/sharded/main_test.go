package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/examples/checksum/controller"
	"github.com/rota-dev/rota/test/controlplane"
)

// asReplica makes the test binary run main: it is built with the same modfile as the tests.
const asReplica = "CHECKSUM_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) == "" {
		controlplane.Main(m, controlplane.Options{Audit: true})
	}
	go func() { // ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	main()
	os.Exit(0)
}

// replica is a process of the controller.
type replica struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

func startReplica(t *testing.T, kubeconfig, namespace, pod string) *replica {
	t.Helper()
	p := &replica{cmd: exec.Command(os.Args[0], "-kubeconfig", kubeconfig)}
	p.cmd.Args[0] = pod // the user agent's first part: the audit log tells who it was
	p.cmd.Env = append(os.Environ(), asReplica+"=1", "POD_NAME="+pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE="+namespace)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s: %v\n%s", pod, p.cmd.ProcessState, p.log.Bytes())
		}
	})
	return p
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

// secrets are what the replicas work on.
type secrets struct {
	client    kubernetes.Interface
	namespace string
	data      map[string]string // by name
}

// write creates or updates all of them.
func (s *secrets) write(t *testing.T, data string) {
	t.Helper()
	api := s.client.CoreV1().Secrets(s.namespace)
	for name, old := range s.data {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{controller.Annotation: "true"}},
			Data:       map[string][]byte{"password": []byte(data)},
		}
		var err error
		if old == "" {
			_, err = api.Create(t.Context(), secret, metav1.CreateOptions{})
		} else {
			_, err = api.Update(t.Context(), secret, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.data[name] = data
	}
}

func (s *secrets) delete(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.client.CoreV1().Secrets(s.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		delete(s.data, name)
	}
}

// published waits until each Secret has its checksum, and no other ConfigMap of a Secret is left.
func (s *secrets) published(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		list, err := s.client.CoreV1().ConfigMaps(s.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, cm := range list.Items {
			if name, ok := strings.CutSuffix(cm.Name, controller.Suffix); ok {
				got[name] = cm.Data[controller.DataKey]
			}
		}
		missing := ""
		for name, data := range s.data {
			if want := controller.Checksum(map[string][]byte{"password": []byte(data)}); got[name] != want {
				missing = fmt.Sprintf("checksum of %s is %q, want %q", name, got[name], want)
			}
			delete(got, name)
		}
		if missing == "" && len(got) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s; left over: %v", missing, got)
		}
	}
}

// request is one about a published ConfigMap, as the API server saw it.
type request struct {
	User      string `json:"-"` // the first part of UserAgent
	UserAgent string
	Verb      string
	ObjectRef struct{ Namespace, Name string }
	Received  time.Time `json:"requestReceivedTimestamp"`
	Done      time.Time `json:"stageTimestamp"`
}

// requests returns those of replicas, by ConfigMap and in order.
func requests(t *testing.T, plane *controlplane.ControlPlane, namespace string) map[string][]request {
	t.Helper()
	out := map[string][]request{}
	for _, path := range plane.AuditLogs() {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for lines := bufio.NewReader(file); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var r request
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			r.User, _, _ = strings.Cut(r.UserAgent, "/")
			if strings.HasPrefix(r.User, "replica-") && r.ObjectRef.Namespace == namespace && strings.HasSuffix(r.ObjectRef.Name, controller.Suffix) {
				out[r.ObjectRef.Name] = append(out[r.ObjectRef.Name], r)
			}
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b request) int { return a.Received.Compare(b.Received) })
	}
	return out
}

// users returns who sent requests, with the number of objects.
func users(all map[string][]request) map[string]int {
	out := map[string]int{}
	for _, list := range all {
		seen := map[string]bool{}
		for _, r := range list {
			if !seen[r.User] {
				out[r.User]++
			}
			seen[r.User] = true
		}
	}
	return out
}

func TestTwoReplicasShareSecrets(t *testing.T) {
	controlplane.Essential(t)
	plane := controlplane.For(t)
	namespace := controlplane.Namespace(t)
	s := &secrets{client: kubernetes.NewForConfigOrDie(plane.Config()), namespace: namespace, data: map[string]string{}}
	for i := range 60 {
		s.data[fmt.Sprintf("secret-%02d", i)] = ""
	}
	s.write(t, "1")
	a := startReplica(t, plane.Kubeconfig(), namespace, "replica-a")
	s.published(t)

	startReplica(t, plane.Kubeconfig(), namespace, "replica-b")
	for i := 0; users(requests(t, plane, namespace))["replica-b"] < 20; i++ { // of about 30
		s.write(t, fmt.Sprintf("2.%d", i))
		s.published(t)
	}
	s.delete(t, "secret-00", "secret-01", "secret-02", "secret-03", "secret-04", "secret-05")
	s.published(t)

	a.leave(t)
	left := time.Now()
	s.write(t, "3")
	s.delete(t, "secret-10", "secret-11", "secret-12")
	s.published(t)

	for name, list := range requests(t, plane, namespace) {
		turns := 0
		for i, r := range list {
			if r.User == "replica-a" && r.Received.After(left) {
				t.Errorf("%s: %s by %s after it had left", name, r.Verb, r.User)
			}
			if i == 0 || r.User == list[i-1].User {
				continue
			}
			turns++
			if before := slices.MaxFunc(list[:i], func(x, y request) int { return cmp.Compare(x.Done.UnixNano(), y.Done.UnixNano()) }); before.Done.After(r.Received) {
				t.Errorf("%s: %s by %s began before %s by %s had ended", name, r.Verb, r.User, before.Verb, before.User)
			}
		}
		if turns > 1 {
			t.Errorf("%s went to and fro %d times, want from replica-a to replica-b only", name, turns)
		}
	}
}
