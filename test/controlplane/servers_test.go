package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOptions has several options at once, so that it takes one control plane.
func TestOptions(t *testing.T) {
	t.Parallel()
	c := New(t, Options{
		Env: []string{"GOGC=234"}, SplitEtcd: []string{"coordination.k8s.io/leases", "/events,/secrets"},
		Fsync: true, ControllerManager: true,
	})
	t.Run("Env", func(t *testing.T) { testEnv(t, c) })
	t.Run("SplitEtcd", func(t *testing.T) { testSplitEtcd(t, c) })
	t.Run("ControllerManager", func(t *testing.T) { testControllerManager(t, c) })
}

func testEnv(t *testing.T, c *ControlPlane) {
	metrics, err := clientset(t, c.Config()).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(metrics, []byte("\ngo_gc_gogc_percent 234\n")) {
		t.Error("the API server runs without the variable of Options.Env")
	}
}

func TestTwoAPIServers(t *testing.T) {
	t.Parallel()
	c := New(t, Options{APIServers: 2, Audit: true})
	ns := c.Namespace(t)
	for i := range 2 {
		writer, reader := c.ConfigFor(i), c.ConfigFor(1-i)
		name := fmt.Sprintf("by-%d", i)
		cm, err := clientset(t, writer).CoreV1().ConfigMaps(ns).Create(t.Context(), configMap(name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := clientset(t, reader).CoreV1().ConfigMaps(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || got.ResourceVersion != cm.ResourceVersion {
			t.Errorf("API server %d sees %v, %v of a write through %d", 1-i, got, err, i)
		}
	}
	if n := len(c.AuditLogs()); n != 2 {
		t.Errorf("%d audit logs, want one per API server", n)
	}
	if err := c.InstallCRDs(t.Context(), widgetCRD); err != nil {
		t.Fatal(err)
	}
	// One goes, the other serves; it comes back where it was.
	if err := c.StopServer("apiserver-0"); err != nil {
		t.Fatal(err)
	}
	first := clientset(t, c.ConfigFor(0)).CoreV1().ConfigMaps(ns)
	if _, err := first.Get(t.Context(), "by-0", metav1.GetOptions{}); err == nil {
		t.Error("a stopped API server answers")
	}
	second := clientset(t, c.ConfigFor(1)).CoreV1().ConfigMaps(ns)
	if _, err := second.Create(t.Context(), configMap("meanwhile"), metav1.CreateOptions{}); err != nil {
		t.Errorf("the other API server: %v", err)
	}
	if err := c.StartServer("apiserver-0"); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Get(t.Context(), "meanwhile", metav1.GetOptions{}); err != nil {
		t.Errorf("after its restart: %v", err)
	}
}

// TestKilledServers: servers that are killed keep their data, and one that dies on its own ends everything.
func TestKilledServers(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	left := footprintOf(c)
	ns := c.Namespace(t)
	maps := clientset(t, c.Config()).CoreV1().ConfigMaps(ns)
	before, err := maps.Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"apiserver-0", "etcd-0"} {
		pid := c.PID(name)
		if err := c.KillServer(name); err != nil {
			t.Fatal(err)
		}
		if c.PID(name) != 0 || alive(pid) {
			t.Errorf("%s runs after KillServer", name)
		}
		if err := c.KillServer(name); err == nil {
			t.Errorf("%s: killed twice", name)
		}
	}
	for _, name := range []string{"etcd-0", "apiserver-0"} {
		if err := c.StartServer(name); err != nil {
			t.Fatal(err)
		}
		if !alive(c.PID(name)) {
			t.Errorf("%s does not run after StartServer", name)
		}
	}
	after, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("after the restart: %v, %v, want %v", after, err, before)
	}
	if err := c.StopServer("apiserver-7"); err == nil || !strings.Contains(err.Error(), "etcd-0") {
		t.Errorf("stopping a server that is not there: %v, want the names that are", err)
	}

	// Now one dies by itself. The error of Stop has the end of its log.
	left.Servers = c.PIDs()
	if err := syscall.Kill(c.PID("apiserver-0"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	err = c.Stop()
	if err == nil || !strings.Contains(err.Error(), "apiserver-0 died") || !strings.Contains(err.Error(), "last lines of its log") {
		t.Errorf("Stop: %v, want who died and its log", err)
	}
	if err := c.StartServer("apiserver-0"); err == nil {
		t.Error("a dead control plane takes commands")
	}
	left.mustBeGone(t)
}

// testSplitEtcd: the kinds that are split off live in their own etcds and only there. Events are one kind in two groups.
func testSplitEtcd(t *testing.T, c *ControlPlane) {
	ns := c.Namespace(t)
	client := clientset(t, c.Config())
	named := metav1.ObjectMeta{Name: "a"}
	_, leaseErr := client.CoordinationV1().Leases(ns).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: named},
		metav1.CreateOptions{})
	_, mapErr := client.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	_, secretErr := client.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: named},
		metav1.CreateOptions{})
	_, eventErr := client.EventsV1().Events(ns).Create(t.Context(), &eventsv1.Event{
		ObjectMeta: named, EventTime: metav1.NowMicro(), Action: "test", Reason: "Test", Type: corev1.EventTypeNormal,
		ReportingController: "test", ReportingInstance: "test", Regarding: corev1.ObjectReference{Namespace: ns},
	}, metav1.CreateOptions{})
	if err := errors.Join(leaseErr, mapErr, secretErr, eventErr); err != nil {
		t.Fatal(err)
	}
	for kind, etcd := range map[string]int{"configmaps": 0, "leases": 1, "events": 2, "secrets": 2} {
		for i, url := range c.Etcd() {
			want := 0
			if i == etcd {
				want = 1
			}
			if got := etcdCount(t, url, "/registry/"+kind+"/"+ns+"/a"); got != want {
				t.Errorf("etcd %d has %d of %s, want %d", i, got, kind, want)
			}
		}
	}
	if n := len(c.Etcd()); n != 3 {
		t.Errorf("%d etcds, want 3", n)
	}
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.PID("etcd-2"))); err == nil &&
		bytes.Contains(cmdline, []byte("unsafe-no-fsync")) {
		t.Error("etcd does not wait for the disk")
	}
}

// etcdCount asks etcd's JSON gateway whether it has a key: 0 or 1.
func etcdCount(t *testing.T, url, key string) int {
	t.Helper()
	body, _ := json.Marshal(map[string]any{"key": []byte(key), "count_only": true})
	resp, err := http.Post(url+"/v3/kv/range", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Count int `json:"count,string"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("etcd: %s: %v", resp.Status, err)
	}
	return answer.Count
}

// TestSplitEtcdRefuses what the API server would ignore.
func TestSplitEtcdRefuses(t *testing.T) {
	skipIfShort(t)
	for want, split := range map[string][]string{
		"only built-in kinds":    {"example.com/widgets"},
		"no such built-in":       {"coordination.k8s.io/Lease"},
		"/configmaplists: there": {"/configmaplists"},
		"/listoptions: there":    {"/listoptions"},
		"keeps these as":         {"events.k8s.io/events"},
		"split off twice":        {"/events,/configmaps", "events"},
		"is not group/res":       {"coordination.k8s.io/leases,"},
	} {
		if _, err := Start(t.Context(), Options{SplitEtcd: split}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", split, err, want)
		}
	}
}

func testControllerManager(t *testing.T, c *ControlPlane) {
	ns := c.Namespace(t)
	client := clientset(t, c.Config()).CoreV1()
	eventually(t, 20*time.Second, func() error { // the service account controller
		_, err := client.ServiceAccounts(ns).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	owner, err := client.ConfigMaps(ns).Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child := configMap("child")
	child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	if _, err := client.ConfigMaps(ns).Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigMaps(ns).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := func(err error) error {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("still there"))
	}
	eventually(t, 20*time.Second, func() error { // the garbage collector
		_, err := client.ConfigMaps(ns).Get(t.Context(), "child", metav1.GetOptions{})
		return gone(err)
	})
	if err := client.Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error { // the namespace controller
		_, err := client.Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		return gone(err)
	})
}
