package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/internal/controlplane"
)

// asReplica makes the test binary run main: it is built with the same modfile as the tests.
const asReplica = "NOTIFY_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) == "" {
		controlplane.Main(m, controlplane.Options{})
	}
	go func() { // ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	main()
}

// TestLeaderTells: the form with leader election works as well. All else is tested with the sharded form.
func TestLeaderTells(t *testing.T) {
	plane := controlplane.For(t)
	home, away := controlplane.Namespace(t), controlplane.Namespace(t)
	bodies := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "notify.yaml")
	text := fmt.Sprintf(`{source: /test, destinations: [{name: ops, slack: {url: "%s"}}],
		kinds: [{apiVersion: v1, kind: ConfigMap, namespaces: [%s], events: [created, changed, deleted]}]}`, receiver.URL, away)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "\t", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	replica := exec.Command(os.Args[0], "-kubeconfig", plane.Kubeconfig(), "-config", file, "-listen", "127.0.0.1:0")
	replica.Env = append(os.Environ(), asReplica+"=1", "POD_NAME=notify-0", "POD_NAMESPACE="+home)
	log := &strings.Builder{}
	replica.Stdout, replica.Stderr = log, log
	if _, err := replica.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = replica.Process.Kill()
		_ = replica.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	client := kubernetes.NewForConfigOrDie(plane.Config()).CoreV1()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, err := client.ConfigMaps(home).Get(t.Context(), "notify-since-configmap", metav1.GetOptions{})
		if err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
	cm, err := client.ConfigMaps(away).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(event string) {
		t.Helper()
		want := fmt.Sprintf("*%s*: ConfigMap %s/a", event, away)
		select {
		case body := <-bodies:
			if !strings.Contains(body, want) {
				t.Fatalf("got %s, want %s", body, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing came, want %s", want)
		}
	}
	expect("created")
	cm.Data = map[string]string{"a": "b"}
	if _, err := client.ConfigMaps(away).Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("changed")
	if err := client.ConfigMaps(away).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("deleted")
}
