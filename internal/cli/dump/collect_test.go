package dump

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/test/require"
)

// Pods on dead nodes, whose logs never come, do not keep the others' out of the archive.
func TestDeadNodes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/dead-"):
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/log"):
			_, _ = io.WriteString(w, "I am alive\n")
		default:
			_, _ = io.WriteString(w, "rota_epoch 43\n")
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	var pods []corev1.Pod
	for i := range 2 * atOnce {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("dead-%d", i)},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "manager", RestartCount: 1}}}})
	}
	alive := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "alive"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "manager"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	var out bytes.Buffer
	c := &collector{o: Options{Logs: true, LogBytes: 1000, LogTimeout: time.Second}, client: client, a: NewArchive(&out, "d", time.Now())}
	c.words(t.Context(), append(slices.Clone(pods), alive))
	require.NoError(t, c.a.Close("test"))
	files := map[string]string{}
	zip, err := gzip.NewReader(&out)
	require.NoError(t, err)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		text, readErr := io.ReadAll(r)
		require.NoError(t, errors.Join(err, readErr))
		files[h.Name] = string(text)
	}
	if files["d/logs/alive.manager.log"] != "I am alive\n" || files["d/metrics/alive.txt"] != "rota_epoch 43\n" {
		t.Errorf("the living Pod's words are missing: %q", files)
	}
	for i := range pods {
		for _, want := range []string{
			"logs/" + pods[i].Name + ".manager.log: ", "logs/" + pods[i].Name + ".manager.previous.log: another log",
			"metrics of " + pods[i].Name + " by port 8080 through the API server's proxy: its log timed out",
		} {
			if !strings.Contains(files["d/README.txt"], want) {
				t.Errorf("README.txt does not say %q", want)
			}
		}
	}
}
