package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	dispatch "github.com/rota-dev/rota/dispatch/client"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/controlplane/assets"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/process"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

// told returns figures of dispatchers.
type told func() dispatch.Stats

func (f told) Stats(context.Context) (dispatch.Stats, error) { return f(), nil }

// manifest reads an object from a file of this folder.
func manifest[T any](t *testing.T, file string) (out T) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err = errors.Join(err, yaml.UnmarshalStrict(text, &out)); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return out
}

// TestScales: with the manifests, the HorizontalPodAutoscaler of the kube-controller-manager adds workers while keys
// wait, and takes them away when none does.
func TestScales(t *testing.T) {
	plane, namespace, ctx := controlplane.For(t), controlplane.Namespace(t), t.Context()
	c, err := client.New(plane.Config(), client.Options{})
	require.NoError(t, err)
	var pending atomic.Int64
	server := httptest.NewTLSServer(newHandler(told(func() dispatch.Stats {
		kind := dispatch.KindStats{Kind: "Website.web.example.com", Pending: int(pending.Load())}
		return dispatch.Stats{Dispatchers: 1, Kinds: []dispatch.KindStats{kind}}
	})))
	defer server.Close()
	service := &unstructured.Unstructured{Object: manifest[map[string]any](t, "apiservice.yaml")}
	hpa := manifest[*autoscalingv2.HorizontalPodAutoscaler](t, "hpa.yaml")
	spec, _ := service.Object["spec"].(map[string]any)
	delete(spec, "caBundle")
	spec["insecureSkipTLSVerify"] = true
	addr, _ := server.Listener.Addr().(*net.TCPAddr)
	spec["service"] = map[string]any{"namespace": namespace, "name": "scaling", "port": int64(addr.Port)}
	soon := int32(3)
	hpa.Namespace, hpa.Spec.Behavior.ScaleDown.StabilizationWindowSeconds = namespace, &soon
	about, one := map[string]string{"app": "worker"}, int32(1)
	workers := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hpa.Spec.ScaleTargetRef.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: about},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: about},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "worker"}}},
			},
		},
	}
	for _, obj := range []client.Object{&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scaling"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, service, workers, hpa} {
		require.NoError(t, c.Create(ctx, obj))
	}
	controllerManager(t, plane.Kubeconfig())
	for _, step := range []struct {
		pending int64
		want    int32
	}{{500, 10}, {22, 5}, {0, 1}} {
		pending.Store(step.pending)
		if err := await.Until(ctx, 100*time.Millisecond, 2*time.Minute, func() string {
			if err := c.Get(ctx, client.ObjectKeyFromObject(workers), workers); err != nil {
				return err.Error()
			}
			n := *workers.Spec.Replicas
			if workers.Status.Replicas != n { // as the Deployment's controller does
				workers.Status.Replicas = n
				_ = c.Status().Update(ctx, workers) // or next time
			}
			if n != step.want {
				return fmt.Sprintf("with %d keys: %d workers, want %d", step.pending, n, step.want)
			}
			return ""
		}); err != nil {
			_ = c.Get(ctx, client.ObjectKeyFromObject(hpa), hpa)
			t.Fatalf("%v; %+v", err, hpa.Status)
		}
	}
}

// controllerManager runs the controller of HorizontalPodAutoscalers until the end of the test.
func controllerManager(t *testing.T, kubeconfig string) {
	t.Helper()
	programs, err := assets.Find(t.Context(), os.Stderr)
	require.NoError(t, err)
	binary, err := programs.ControllerManager(t.Context(), os.Stderr)
	require.NoError(t, err)
	port, err := process.FreePort(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	p, err := process.Start(process.Options{
		Name: "kube-controller-manager", Log: filepath.Join(dir, "log"), Variable: "ROTA_UNUSED",
		Command: []string{
			binary, "--kubeconfig=" + kubeconfig, "--leader-elect=false", "--cert-dir=" + dir,
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
			"--controllers=horizontal-pod-autoscaler-controller", "--horizontal-pod-autoscaler-sync-period=1s",
		},
	})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
}

// TestFigures: the figures of all kinds, or of those that are selected, and none if some are missing.
func TestFigures(t *testing.T) {
	kinds := []dispatch.KindStats{{Kind: "Pod", Pending: 3, OldestSeconds: 1.5}, {Kind: "Node", Pending: 4}}
	get := func(s dispatch.Stats, path string) (int, string) {
		w := httptest.NewRecorder()
		newHandler(told(func() dispatch.Stats { return s })).ServeHTTP(w, httptest.NewRequest(http.MethodGet, base+path, nil))
		return w.Code, w.Body.String()
	}
	all, pod := "/namespaces/a/rota_dispatch_pending", "/namespaces/a/rota_dispatch_oldest_seconds?labelSelector=kind%3DPod"
	for _, c := range []struct {
		stats      dispatch.Stats
		path       string
		code       int
		has, lacks string
	}{
		{dispatch.Stats{Dispatchers: 1, Kinds: kinds}, all, 200, `"value":"4"`, "1500m"},
		{dispatch.Stats{Dispatchers: 1, Kinds: kinds}, pod, 200, `"value":"1500m"`, "Node"},
		{dispatch.Stats{Dispatchers: 3, Silent: 1, Kinds: kinds}, all, 503, "1 of 3 dispatchers do not answer", "items"},
		{dispatch.Stats{}, "/namespaces/a/rota_dispatch_ready", 404, "no metric rota_dispatch_ready", "items"},
		{dispatch.Stats{}, all + "?labelSelector=%3D%3D", 400, "labelSelector", "items"},
		{dispatch.Stats{}, "", 200, "rota_dispatch_oldest_seconds", ""},
	} {
		code, body := get(c.stats, c.path)
		if code != c.code || !strings.Contains(body, c.has) || c.lacks != "" && strings.Contains(body, c.lacks) {
			t.Errorf("%s: %d %s", c.path, code, body)
		}
	}
}
