package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/process"
)

// buildAdapter builds the Prometheus Adapter, or finds it in Go's cache.
func buildAdapter(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-n", "adapter")
	cmd.Dir, cmd.Env, cmd.Stderr = "adapter", append(os.Environ(), "GOWORK=off", "GOFLAGS="), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build the Prometheus Adapter: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// adapter is a Prometheus Adapter.
type adapter struct {
	binary, rules, prometheus string
	// relist is the time between two looks at what metrics there are.
	relist time.Duration
}

// run starts it, has the API server ask it, and waits until it has values of the metrics for the Pods of the namespace.
// It ends with the test.
func (a *adapter) run(
	ctx context.Context, t *testing.T, plane *controlplane.ControlPlane, namespace string, metrics []string,
) error {
	dir := t.TempDir()
	crt, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, []string{"adapter." + namespace + ".svc"})
	if err != nil {
		return err
	}
	files := map[string][]byte{"tls.crt": crt, "tls.key": key, "rules.yaml": []byte(a.rules)}
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	port, portErr := process.FreePort(ctx)
	if err := errors.Join(err, portErr); err != nil {
		return err
	}
	config := plane.Kubeconfig()
	p, err := process.Start(process.Options{
		Name: "the Prometheus Adapter", Log: filepath.Join(dir, "log"), Variable: "ROTA_UNUSED",
		Command: []string{
			a.binary, "--prometheus-url=" + a.prometheus, "--config=" + filepath.Join(dir, "rules.yaml"),
			"--lister-kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--metrics-relist-interval=" + a.relist.String(), "--metrics-max-age=" + (2 * a.relist).String(),
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--v=2",
			"--tls-cert-file=" + filepath.Join(dir, "tls.crt"), "--tls-private-key-file=" + filepath.Join(dir, "tls.key"),
		},
	})
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := p.Failure(); err != nil {
			t.Error(err)
		}
		if t.Failed() && testing.Verbose() {
			t.Logf("the adapter:\n%s", p.Tail())
		}
		p.Kill()
	})
	kube, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		return err
	}
	err = kube.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "adapter", Namespace: namespace},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})
	if err != nil {
		return err
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		service := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"metadata": map[string]any{"name": version + ".custom.metrics.k8s.io"},
			"spec": map[string]any{
				"group": "custom.metrics.k8s.io", "version": version, "groupPriorityMinimum": int64(100),
				"versionPriority": int64(100), "caBundle": base64Of(crt),
				"service": map[string]any{"namespace": namespace, "name": "adapter", "port": int64(port)},
			},
		}}
		if err := kube.Create(ctx, service); err != nil {
			return err
		}
	}
	return a.answers(ctx, plane, namespace, metrics)
}

// answers waits until the API server has values of all metrics.
func (a *adapter) answers(
	ctx context.Context, plane *controlplane.ControlPlane, namespace string, metrics []string,
) error {
	clientset, err := kubernetesFor(plane)
	if err != nil {
		return err
	}
	for _, metric := range metrics {
		path := "/apis/custom.metrics.k8s.io/v1beta2/namespaces/" + namespace + "/pods/*/" + metric
		err := await.Until(ctx, 200*time.Millisecond, 2*time.Minute, func() string {
			text, err := clientset.RESTClient().Get().AbsPath(path).DoRaw(ctx)
			if err != nil || !strings.Contains(string(text), metric) {
				return fmt.Sprintf("%s: %v: %s", metric, err, text)
			}
			return ""
		})
		if err != nil {
			return err
		}
	}
	return nil
}
