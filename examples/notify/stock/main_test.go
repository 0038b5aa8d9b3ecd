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
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/test/controlplane"
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
	first := sync.OnceValue(time.Now) // a second after it, the digest is due
	now = func() time.Time { return time.Date(2026, 1, 2, 7, 59, 59, 0, time.UTC).Add(time.Since(first())) }
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
	text := fmt.Sprintf(`{source: /test, destinations: [{name: ops, slack: {url: "%[1]s"}}],
		kinds: [{apiVersion: v1, kind: ConfigMap, namespaces: [%[2]s], events: [created, changed, deleted]},
		{apiVersion: v1, kind: Pod, namespaces: [%[2]s], events: [failing]}], digest: {at: "08:00"}}`, receiver.URL, away)
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
	digests := 0
	next := func() (body string) {
		select {
		case body = <-bodies:
		case <-time.After(time.Minute):
			t.Fatal("nothing came for a minute")
		}
		if strings.Contains(body, "*digest*") {
			if digests++; !strings.Contains(body, "Friday 2 January 2026: nothing fails") {
				t.Errorf("got %s, want the digest of the day", body)
			}
		}
		return body
	}
	expect := func(event string) {
		t.Helper()
		body, want := next(), fmt.Sprintf("*%s*: ConfigMap %s/a", event, away)
		for strings.Contains(body, "*digest*") {
			body = next()
		}
		if !strings.Contains(body, want) {
			t.Fatalf("got %s, want %s", body, want)
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
	for digests == 0 {
		next()
	}
}
