// Package dispatch has the test of the example's manifests.
package dispatch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota"
	website "github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/dispatch/app"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	controlplane.Main(m, controlplane.Options{})
}

// manifests returns the objects of a file.
func manifests(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(doc, &obj.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, obj)
	}
	return out
}

// config returns the configuration in dispatcher.yaml.
func config(t *testing.T) *app.Config {
	t.Helper()
	for _, obj := range manifests(t, "dispatcher.yaml") {
		if obj.GetKind() == "ConfigMap" {
			text, _, _ := unstructured.NestedString(obj.Object, "data", "config.yaml")
			c, err := app.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	t.Fatal("no ConfigMap")
	return nil
}

// TestRules: the dispatchers may do what a member and a dispatcher need, no more and no less.
func TestRules(t *testing.T) {
	for _, obj := range manifests(t, "rbac.yaml") {
		if obj.GetKind() != "Role" {
			continue
		}
		var role rbacv1.Role
		text, err := json.Marshal(obj)
		if err == nil {
			err = json.Unmarshal(text, &role)
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(permission.Rules(config(t).Name), role.Rules); diff != "" {
			t.Errorf("-permission.Rules +manifest:\n%s", diff)
		}
		return
	}
	t.Error("no Role")
}

// TestREADME: the table has every field of the configuration, and no others.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "| field | default | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	told := map[string]bool{}
	for row := range strings.Lines(table) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			told[m[1]] = true
		}
	}
	has := map[string]bool{}
	fields(reflect.TypeFor[app.Config](), "", has)
	if diff := cmp.Diff(has, told); diff != "" {
		t.Errorf("-app.Config +README.md:\n%s", diff)
	}
}

// fields adds the names of a struct's fields, with those of structs in it.
func fields(of reflect.Type, prefix string, to map[string]bool) {
	for i := range of.NumField() {
		f := of.Field(i)
		name := prefix + f.Tag.Get("yaml")
		switch {
		case f.Type.Kind() == reflect.Struct:
			fields(f.Type, name+".", to)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			fields(f.Type.Elem(), name+"[].", to)
		default:
			to[name] = true
		}
	}
}

// TestManifests: an API server takes the manifests, and with their permissions and configuration a dispatcher hands a
// Website to a worker.
func TestManifests(t *testing.T) {
	plane := controlplane.For(t)
	if err := plane.InstallCRDs(t.Context(), website.CRD); err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "operators"},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"rbac.yaml", "dispatcher.yaml", "worker.yaml"} {
		for _, obj := range manifests(t, file) {
			if err := c.Create(t.Context(), obj, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Errorf("%s: %s %s: %v", file, obj.GetKind(), obj.GetName(), err)
			}
		}
	}
	site := &unstructured.Unstructured{}
	site.SetAPIVersion("web.example.com/v1")
	site.SetKind("Website")
	site.SetNamespace("default")
	site.SetName("shop")
	_ = unstructured.SetNestedField(site.Object, "Shop", "spec", "title")
	if err := c.Create(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	token := func(account string, audiences ...string) string {
		t.Helper()
		request, err := typed.CoreV1().ServiceAccounts("operators").CreateToken(t.Context(), account,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	d := config(t)
	dir := t.TempDir()
	roots := certificate(t, dir, d.Server.TLS.ServerName)
	d.LeaseDuration = app.Duration(4 * time.Second)
	d.Namespace, d.TokenFile, d.Metrics, d.Server.Listen = "operators", dir+"/token", "localhost:0", "127.0.0.1:0"
	for _, file := range []*string{&d.Server.TLS.CertFile, &d.Server.TLS.KeyFile, &d.Server.TLS.CAFile} {
		*file = filepath.Join(dir, filepath.Base(*file))
	}
	if err := os.WriteFile(d.TokenFile, []byte(token("website-dispatch", "rota.dev/dispatch")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(plane.Config())
	cfg.BearerToken = token("website-dispatch")
	dispatcher, err := app.New(t.Context(), cfg, d, rota.Identity{Pod: "website-dispatch-0"},
		funcr.New(func(_, text string) { t.Log(text) }, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(ctx) }()
	defer func() {
		leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "website-dispatch.operators.svc"}} // Go's default is 1.2
	defer transport.CloseIdleConnections()
	worker, shown := &http.Client{Transport: transport}, token("website-worker", "rota.dev/dispatch")
	send := func(path, body string) (int, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, dispatcher.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", wire.TypeJSON)
		r.Header.Set("Authorization", "Bearer "+shown)
		answer, err := worker.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, text
	}
	var got wire.TakeResponse
	for polls := 0; len(got.Takes) == 0; polls++ {
		code, text := send(wire.PathTake, `{"worker": "website-worker-0", "waitSeconds": 1}`)
		if err := json.Unmarshal(text, &got); err != nil || code != http.StatusOK || polls == 60 {
			t.Fatalf("poll %d: %d %s", polls, code, text)
		}
	}
	take := got.Takes[0]
	if take.Kind != "Website.web.example.com" || take.Namespace != "default" || take.Name != "shop" {
		t.Errorf("took %+v", take)
	}
	if code, text := send(wire.PathDone, `{"token": "`+take.Token+`"}`); code != http.StatusNoContent {
		t.Errorf("done: %d %s", code, text)
	}
}

// certificate writes one, with its key and authority.
func certificate(t *testing.T, dir, name string) *x509.CertPool {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		"tls.crt": chain, "ca.crt": chain, "tls.key": key,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(chain)
	return pool
}
