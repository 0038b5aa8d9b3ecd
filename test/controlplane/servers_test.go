package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/test/require"
)

// TestOptions has several options at once, so that it takes one control plane.
func TestOptions(t *testing.T) {
	t.Parallel()
	c := New(t, Options{Env: []string{"GOGC=234"}, ControllerManager: true})
	t.Run("Env", func(t *testing.T) { testEnv(t, c) })
	t.Run("ControllerManager", func(t *testing.T) { testControllerManager(t, c) })
}

func testEnv(t *testing.T, c *ControlPlane) {
	metrics, err := clientset(t, c.Config()).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
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
		require.NoError(t, err)
		got, err := clientset(t, reader).CoreV1().ConfigMaps(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || got.ResourceVersion != cm.ResourceVersion {
			t.Errorf("API server %d sees %v, %v of a write through %d", 1-i, got, err, i)
		}
	}
	if n := len(c.AuditLogs()); n != 2 {
		t.Errorf("%d audit logs, want one per API server", n)
	}
	require.NoError(t, c.InstallCRDs(t.Context(), widgetCRD))
	// One goes, the other serves; it comes back where it was.
	require.NoError(t, c.StopServer("apiserver-0"))
	first := clientset(t, c.ConfigFor(0)).CoreV1().ConfigMaps(ns)
	if _, err := first.Get(t.Context(), "by-0", metav1.GetOptions{}); err == nil {
		t.Error("a stopped API server answers")
	}
	second := clientset(t, c.ConfigFor(1)).CoreV1().ConfigMaps(ns)
	if _, err := second.Create(t.Context(), configMap("meanwhile"), metav1.CreateOptions{}); err != nil {
		t.Errorf("the other API server: %v", err)
	}
	require.NoError(t, c.StartServer("apiserver-0"))
	if _, err := first.Get(t.Context(), "meanwhile", metav1.GetOptions{}); err != nil {
		t.Errorf("after its restart: %v", err)
	}
}

// TestKilledServers: servers that are killed keep their data, and one that dies on its own ends everything.
func TestKilledServers(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer c.Stop()
	left := footprintOf(c)
	ns := c.Namespace(t)
	maps := clientset(t, c.Config()).CoreV1().ConfigMaps(ns)
	before, err := maps.Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"apiserver-0", "etcd-0"} {
		pid := c.PID(name)
		require.NoError(t, c.KillServer(name))
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
	require.NoError(t, syscall.Kill(c.PID("apiserver-0"), syscall.SIGKILL))
	require.Receive(t, c.Done(), 20*time.Second, "it does not end")
	err = c.Stop()
	if err == nil || !strings.Contains(err.Error(), "apiserver-0 died") || !strings.Contains(err.Error(), "last lines of its log") {
		t.Errorf("Stop: %v, want who died and its log", err)
	}
	if err := c.StartServer("apiserver-0"); err == nil {
		t.Error("a dead control plane takes commands")
	}
	left.mustBeGone(t)
}

func testControllerManager(t *testing.T, c *ControlPlane) {
	ns := c.Namespace(t)
	client := clientset(t, c.Config()).CoreV1()
	require.Eventually(t, 20*time.Second, func() error { // the service account controller
		_, err := client.ServiceAccounts(ns).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	owner, err := client.ConfigMaps(ns).Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	require.NoError(t, err)
	child := configMap("child")
	child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	_, err = client.ConfigMaps(ns).Create(t.Context(), child, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.ConfigMaps(ns).Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	gone := func(err error) error {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("still there"))
	}
	require.Eventually(t, 20*time.Second, func() error { // the garbage collector
		_, err := client.ConfigMaps(ns).Get(t.Context(), "child", metav1.GetOptions{})
		return gone(err)
	})
	require.NoError(t, client.Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
	require.Eventually(t, 20*time.Second, func() error { // the namespace controller
		_, err := client.Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		return gone(err)
	})
}
