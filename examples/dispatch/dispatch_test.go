// Package dispatch has the test of the example's manifests.
package dispatch

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota"
	dispatch "github.com/rota-dev/rota/dispatch/client"
	website "github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/dispatch/app"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

// manifests returns the objects of a file.
func manifests(t *testing.T, file string) (out []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(doc, &obj.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, obj)
	}
	return out
}

// manifest returns the object of a kind from a file.
func manifest(t *testing.T, file, kind string) map[string]any {
	t.Helper()
	for _, obj := range manifests(t, file) {
		if obj.GetKind() == kind {
			return obj.Object
		}
	}
	t.Fatalf("%s: no %s", file, kind)
	return nil
}

// config returns the configuration in dispatcher.yaml.
func config(t *testing.T) *app.Config {
	t.Helper()
	text, _, _ := unstructured.NestedString(manifest(t, "dispatcher.yaml", "ConfigMap"), "data", "config.yaml")
	c, err := app.Parse([]byte(text))
	require.NoError(t, err)
	return c
}

// TestRules: the dispatchers may do what a member and a dispatcher need, no more and no less.
func TestRules(t *testing.T) {
	var role rbacv1.Role
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(manifest(t, "rbac.yaml", "Role"), &role))
	if diff := cmp.Diff(permission.Rules(config(t).Name), role.Rules); diff != "" {
		t.Errorf("-permission.Rules +manifest:\n%s", diff)
	}
}

// TestManifests: an API server takes the manifests, and with their permissions and configuration a dispatcher hands a
// Website to a worker.
func TestManifests(t *testing.T) {
	plane, ctx := controlplane.For(t), t.Context()
	require.NoError(t, plane.InstallCRDs(ctx, website.CRD))
	c, err := client.New(plane.Config(), client.Options{})
	require.NoError(t, err)
	objects := slices.Concat([]*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "operators"}}},
		{Object: map[string]any{
			"apiVersion": "web.example.com/v1", "kind": "Website",
			"metadata": map[string]any{"namespace": "default", "name": "shop"}, "spec": map[string]any{"title": "Shop"},
		}},
	}, manifests(t, "rbac.yaml"), manifests(t, "dispatcher.yaml"), manifests(t, "worker.yaml"))
	for _, obj := range objects {
		if err := c.Create(ctx, obj, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		return filepath.Join(dir, name)
	}
	token := func(account string, audiences ...string) string {
		return plane.Token(t, "operators", account, audiences...)
	}
	d := config(t)
	chain, key, err := cert.GenerateSelfSignedCertKey(d.Server.TLS.ServerName, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	require.NoError(t, err)
	d.Server.TLS.CertFile, d.Server.TLS.KeyFile = file("tls.crt", string(chain)), file("tls.key", string(key))
	d.Server.TLS.CAFile, d.TokenFile = d.Server.TLS.CertFile, file("token", token("website-dispatch", "rota.dev/dispatch"))
	d.Namespace, d.Metrics, d.Server.Listen = "operators", "localhost:0", "127.0.0.1:0"
	d.LeaseDuration = app.Duration(4 * time.Second)
	require.NoError(t, d.Check())
	cfg := rest.AnonymousClientConfig(plane.Config())
	cfg.BearerToken = token("website-dispatch")
	dispatcher, err := app.New(ctx, cfg, d, rota.Identity{Pod: "website-dispatch-0"}, logr.Discard())
	require.NoError(t, err)
	running, leave := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(running) }()
	defer func() {
		leave()
		require.NoError(t, <-ended)
	}()
	worker, err := dispatch.New(dispatch.Options{
		URLs: []string{dispatcher.URL()}, CAFile: d.Server.TLS.CAFile,
		TokenFile: file("worker-token", token("website-worker", "rota.dev/dispatch")),
	})
	require.NoError(t, err)
	var takes []*dispatch.Take
	for len(takes) == 0 && err == nil { // until the test's time is over
		takes, err = worker.Take(ctx, dispatch.TakeRequest{Worker: "website-worker-0", WaitSeconds: 5})
	}
	require.NoError(t, err)
	if got := takes[0]; got.Kind != "Website.web.example.com" || got.Namespace != "default" || got.Name != "shop" {
		t.Errorf("took %+v", got)
	}
	require.NoError(t, worker.Done(ctx, takes[0], dispatch.Result{}))
}
