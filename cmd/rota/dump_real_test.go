package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/test/require"
)

// planted is what must not be in an archive.
const planted = "correct-horse-battery"

// unpack reads an archive. Its files have no directory here.
func unpack(t *testing.T, data io.Reader) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(data)
	require.NoError(t, err)
	files := map[string]string{}
	for in := tar.NewReader(zip); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(in)
		require.NoError(t, err)
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}

// workload makes a ReplicaSet of a Deployment, and a Pod of it, with a secret wherever one can be. The container has
// crashed once.
func (w *written) workload(t *testing.T, set, pod string) {
	t.Helper()
	ctx := t.Context()
	yes := true
	owner := func(version, kind, name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: &yes}}
	}
	spec := corev1.PodSpec{InitContainers: []corev1.Container{{Name: "sidecar", Image: "sidecar:v1"}}, Containers: []corev1.Container{{
		Name: "manager", Image: "web:v7", Args: []string{"--password=" + planted}, Command: []string{"web", planted},
		Env: []corev1.EnvVar{{Name: "PASSWORD", Value: planted}}, Ports: []corev1.ContainerPort{{Name: "http-metrics", ContainerPort: 9090}},
	}}}
	meta := metav1.ObjectMeta{Name: set, Labels: map[string]string{"app": set}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: planted}}
	meta.OwnerReferences = owner("apps/v1", "Deployment", "web", "00000000-0000-0000-0000-000000000001")
	rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: spec},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	meta.Name, meta.OwnerReferences = pod, owner("apps/v1", "ReplicaSet", set, string(rs.UID))
	made, err := w.client.CoreV1().Pods(w.namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	made.Status.Phase = corev1.PodRunning
	made.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "manager", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "last words of " + pod}},
	}}
	made.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "sidecar", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "last words of the sidecar"}},
	}}
	_, err = w.client.CoreV1().Pods(w.namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// proxied returns a kubeconfig for a proxy in front of the API server. The proxy passes on what answer does not answer.
func (w *written) proxied(t *testing.T, answer func(http.ResponseWriter, *http.Request) bool) (kubeconfig string) {
	t.Helper()
	cfg := w.plane.Config()
	transport, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	to, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if !answer(out, r) {
			proxy.ServeHTTP(out, r)
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "proxied")
	writeFile(t, kubeconfig, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}]}`, server.URL))
	return kubeconfig
}

// withKubelet returns a kubeconfig for a proxy that answers for the Pods: this control plane has no nodes.
func (w *written) withKubelet(t *testing.T, log string) (kubeconfig string) {
	t.Helper()
	return w.proxied(t, func(out http.ResponseWriter, r *http.Request) bool {
		switch pods := "/api/v1/namespaces/" + w.namespace + "/pods/"; r.URL.Path {
		case pods + "web-0/log":
			_, _ = fmt.Fprintf(out, "previous=%s\n%s", r.URL.Query().Get("previous"), log)
		case pods + "web-0:9090/proxy/metrics":
			_, _ = io.WriteString(out, "rota_epoch 43\n")
		case pods + "web-2:9090/proxy/metrics":
			_, _ = io.WriteString(out, planted) // of some other program
		default:
			return false
		}
		return true
	})
}

// An archive has what helps, of the members' Pods and of others of their Deployment that have not joined; no secret is in
// it, wherever it is in the namespace; and it says what could not be read.
func TestDump(t *testing.T) {
	t.Parallel()
	w := writeRota(t, halves())
	w.workload(t, "web-7d9f8b6c5", "web-0")
	w.workload(t, "web-5c6d7f8b9", "web-2")
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	_, errPod := w.client.CoreV1().Pods(w.namespace).Create(t.Context(), stranger, metav1.CreateOptions{})
	_, errSecret := w.client.CoreV1().Secrets(w.namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, StringData: map[string]string{"password": planted}}, metav1.CreateOptions{})
	_, errMap := w.client.CoreV1().ConfigMaps(w.namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Data: map[string]string{"password": planted}}, metav1.CreateOptions{})
	_, errEvent := w.client.CoreV1().Events(w.namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.namespace, Name: "web-2"}, Reason: "BackOff",
	}, metav1.CreateOptions{})
	require.NoError(t, errors.Join(errPod, errSecret, errMap, errEvent))
	line := strings.Repeat("x", 99) + "\n"
	proxied := w.withKubelet(t, strings.Repeat(line, 50_000)+"the last line\n")
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	code, out, errOut := w.rota(t, "dump -f "+path, proxied)
	if code != exitGood || out != path+"\n" {
		t.Fatalf("exit code %d\n%s%s", code, out, errOut)
	}
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	files := unpack(t, bytes.NewReader(file))
	for name, words := range map[string][]string{
		"table.json": {`"epoch": "43"`}, "leases.json": {"web.web-0-a"}, "reports.json": {"web.web-1-b.report", "rota.dev/report-"},
		"status.txt": {"epoch 43", "web-1-b", "history, newest first:"}, "status.json": {`"epoch": 43`}, "check.txt": {"the table is valid"},
		"events.json": {"BackOff"}, "fence.json": {"policies"}, "server-version.json": {"v1."},
		"pods.json":        {`"name": "web-0"`, `"name": "web-2"`, "137", "OOMKilled", `"PASSWORD"`, "last words"},
		"replicasets.json": {"web-7d9f8b6c5", "web-5c6d7f8b9"}, "metrics/web-0.txt": {"rota_epoch 43"},
		"logs/web-0.manager.log": {"the last line"}, "logs/web-0.manager.previous.log": {"the last line"},
		"logs/web-0.sidecar.log": {"the last line"},
		"README.txt":             {"Rota " + w.namespace + "/web, read at ", "  pods.json\n", "metrics of web-2 by port 9090", "none of Rota's metrics"},
	} {
		for _, word := range words {
			if !strings.Contains(files[name], word) {
				t.Errorf("%s: no %q in\n%.2000s", name, word, files[name])
			}
		}
	}
	for name, text := range files {
		if strings.Contains(text, planted) {
			t.Errorf("%s has the secret", name)
		}
		if strings.Contains(text, `"stranger"`) {
			t.Errorf("%s has a Pod that is none of the rota's", name)
		}
	}
	log := files["logs/web-0.manager.log"]
	if len(log) > maxLogBytes || len(log) < maxLogBytes/2 || !strings.HasPrefix(log, line) {
		t.Errorf("the log has %d bytes, and begins with %.100q", len(log), log)
	}
	if !strings.Contains(errOut, "rota: not in the archive: metrics of web-2 by port 9090") {
		t.Errorf("standard error:\n%s", errOut)
	}
	if code, _, errOut = w.rota(t, "dump -f "+path, proxied); code != exitUsage || !strings.Contains(errOut, "exists") {
		t.Errorf("over a file: exit code %d\n%s", code, errOut)
	}

	// By one who may read the rota alone, to standard output, without logs.
	code, out, errOut = w.rota(t, "dump web --no-logs -f -", w.user(t, "get", "list"))
	files = unpack(t, strings.NewReader(out))
	if code != exitGood || !strings.Contains(errOut, "not in the archive: pods.json: user-") || !strings.Contains(files["README.txt"], "may not list pods") ||
		!strings.Contains(files["table.json"], "43") {
		t.Errorf("with few permissions: exit code %d\n%s\n%v", code, errOut, slices.Sorted(maps.Keys(files)))
	}
	code, out, _ = w.rota(t, "dump web --no-logs -f -", proxied)
	if files = unpack(t, strings.NewReader(out)); code != exitGood || strings.Contains(files["pods.json"], "last words") || files["logs/web-0.manager.log"] != "" {
		t.Errorf("--no-logs: exit code %d, %v", code, slices.Sorted(maps.Keys(files)))
	}
	w.expect(t, "dump other -f "+path+".other", exitMissing, "nothing to archive")
	if _, err := os.Stat(path + ".other"); err == nil {
		t.Error("there is an archive of nothing")
	}
	code, _, errOut = w.rota(t, "dump web --as nobody -f -")
	if code != exitForbidden || !strings.Contains(errOut, "configmaps") {
		t.Errorf("without permission: exit code %d\n%s", code, errOut)
	}
}
