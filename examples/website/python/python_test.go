package python

import (
	"bytes"
	_ "embed" // the worker
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	rotadispatch "github.com/rota-dev/rota/clients/python"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig"
)

//go:embed worker.py
var worker []byte

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

// driver reconciles a Website.
//
//go:embed testdata/driver.py
var driver []byte

// world is Websites, and their reconciler in both languages.
type world struct {
	client.Client
	*testing.T
	namespace, folder string
	server            string
	inGo              *controller.WebsiteReconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	plane := controlplane.For(t)
	w := &world{T: t, namespace: controlplane.Namespace(t), folder: t.TempDir(), server: plane.APIServers()[0]}
	w.do(plane.InstallCRDs(t.Context(), config.CRD))
	c, err := client.New(plane.Config(), client.Options{Scheme: rig.Scheme()})
	w.do(err)
	w.Client = c
	for name, text := range map[string][]byte{"website.py": Website, "driver.py": driver, "ca.crt": plane.Config().CAData} {
		w.do(os.WriteFile(filepath.Join(w.folder, name), text, 0o600))
	}
	w.do(os.Mkdir(w.pages().Dir, 0o700))
	w.authorize()
	w.inGo = &controller.WebsiteReconciler{Client: c, Recorder: &record.FakeRecorder{}, Pages: w.pages()}
	return w
}

// authorize gives the Python worker a ServiceAccount with the rights of the operator.
func (w *world) authorize() {
	w.Helper()
	text, _, _ := bytes.Cut(config.Role, []byte("\n---\n"))
	var role rbacv1.ClusterRole
	w.do(yaml.Unmarshal(text, &role))
	plane := controlplane.For(w)
	plane.MakeAccount(w, w.namespace, "worker", role.Rules...)
	token := plane.Token(w, w.namespace, "worker")
	w.do(os.WriteFile(filepath.Join(w.folder, "token"), []byte(token+"\n"), 0o600))
}

func (w *world) pages() controller.Pages {
	return controller.Pages{Dir: filepath.Join(w.folder, "pages")}
}

func (w *world) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

func (w *world) do(err error) {
	w.Helper()
	require.NoError(w, err)
}

// python reconciles a Website and wants it to return something.
func (w *world) python(name, what, want string) {
	w.Helper()
	path := func(name string) string { return filepath.Join(w.folder, name) }
	cmd := exec.CommandContext(w.Context(), "python3", path("driver.py"), w.server, path("token"), path("ca.crt"),
		path("pages"), w.namespace, name, what)
	text, err := cmd.CombinedOutput()
	if got := string(bytes.TrimSpace(text)); err != nil || got != want {
		w.Errorf("python reconciles %s (%s): %v, %s; want %s", name, what, err, got, want)
	}
}

func (w *world) golang(name string) {
	w.Helper()
	result, err := w.inGo.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(name)})
	if err != nil || result.RequeueAfter > 0 {
		w.Errorf("go reconciles %s: %+v, %v", name, result, err)
	}
}

// versions are those of a Website and its children; one that is not there has none.
func (w *world) versions(name string) string {
	w.Helper()
	var out string
	for _, obj := range []client.Object{
		&webv1.Website{ObjectMeta: w.named(name)}, &corev1.ConfigMap{ObjectMeta: w.named(controller.PageName(name))},
		&appsv1.Deployment{ObjectMeta: w.named(name)}, &corev1.Service{ObjectMeta: w.named(name)},
	} {
		err := w.Get(w.Context(), client.ObjectKeyFromObject(obj), obj)
		w.do(client.IgnoreNotFound(err))
		out += fmt.Sprintf("%T %s; ", obj, obj.GetResourceVersion())
	}
	return out + "page " + w.pages().Checksum(w.key(name))
}

// agree reports if either language finds something to write.
func (w *world) agree(name, when string) {
	w.Helper()
	before := w.versions(name)
	w.golang(name)
	if after := w.versions(name); after != before {
		w.Errorf("%s %s: Go writes what Python has done:\n%s\n%s", name, when, before, after)
	}
	before = w.versions(name)
	w.python(name, "", "0")
	if after := w.versions(name); after != before {
		w.Errorf("%s %s: Python writes what is as it should be:\n%s\n%s", name, when, before, after)
	}
}

func (w *world) patch(obj client.Object, text string) {
	w.Helper()
	w.do(w.Patch(w.Context(), obj, client.RawPatch(types.MergePatchType, []byte(text))))
}

func (w *world) site(name string) *webv1.Website {
	w.Helper()
	site := &webv1.Website{}
	w.do(w.Get(w.Context(), w.key(name), site))
	return site
}

// TestSameAsGo: what one language has done, the other finds nothing wrong with, from creation to deletion.
func TestSameAsGo(t *testing.T) {
	w := newWorld(t)
	secret := &corev1.Secret{ObjectMeta: w.named("certificate"), Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: []byte("certificate ü"), corev1.TLSPrivateKeyKey: []byte("key")}}
	w.do(w.Create(t.Context(), secret))
	for name, spec := range map[string]webv1.WebsiteSpec{
		"plain":     {Title: `a <b> & "c" 'd'`, Content: "ü\n<script>"},
		"protected": {Title: "t", Protected: true, Replicas: ptr.To[int32](0)},
		"tls":       {Title: "t", SecretName: "certificate", Replicas: ptr.To[int32](3)},
		"missing":   {Title: "t", SecretName: "missing"},
	} {
		w.do(w.Create(t.Context(), &webv1.Website{ObjectMeta: w.named(name), Spec: spec}))
		w.python(name, "", "0")
		site := w.site(name)
		if site.Status.ObservedGeneration != site.Generation || site.Status.Checksum != w.pages().Checksum(w.key(name)) ||
			(len(site.Finalizers) == 1) != spec.Protected {
			t.Errorf("%s: %+v", name, site)
		}
		w.agree(name, "is new")

		w.patch(w.site(name), `{"spec":{"content":"other","protected":true}}`)
		w.python(name, "", "0")
		w.agree(name, "has changed")
		w.patch(w.site(name), `{"spec":{"protected":false,"replicas":4}}`)
		w.golang(name)
		w.agree(name, "has changed again")

		w.patch(&corev1.ConfigMap{ObjectMeta: w.named(controller.PageName(name))}, `{"data":{"index.html":"x","more":"x"}}`)
		if name != "missing" {
			w.patch(&corev1.Service{ObjectMeta: w.named(name)}, `{"spec":{"selector":{"x":"y"}}}`)
			w.patch(&appsv1.Deployment{ObjectMeta: w.named(name)}, `{"spec":{"replicas":9}}`)
		}
		w.python(name, "", "0")
		w.agree(name, "was defaced")

		w.patch(w.site(name), `{"spec":{"secretName":"certificate"}}`)
		w.python(name, "", "0")
		w.agree(name, "gets a certificate")
		w.patch(w.site(name), `{"spec":{"secretName":null}}`)
		w.python(name, "", "0")
		w.agree(name, "has no certificate")

		w.patch(w.site(name), fmt.Sprintf(`{"spec":{"protected":%t}}`, spec.Protected))
		w.python(name, "", "0")
		w.do(w.Delete(t.Context(), w.site(name)))
		w.python(name, "", "0")
		err := w.Get(t.Context(), w.key(name), &webv1.Website{})
		if !apierrors.IsNotFound(err) || w.pages().Published(w.key(name)) {
			t.Errorf("%s is deleted: %v, published: %t", name, err, w.pages().Published(w.key(name)))
		}
	}
}

// TestWorker: the program takes a key from a dispatcher, reconciles its Website, and says that it is done.
func TestWorker(t *testing.T) {
	w := newWorld(t)
	for name, text := range map[string][]byte{"worker.py": worker, "rota_dispatch.py": rotadispatch.Client} {
		w.do(os.WriteFile(filepath.Join(w.folder, name), text, 0o600))
	}
	w.do(w.Create(t.Context(), &webv1.Website{ObjectMeta: w.named("site"), Spec: webv1.WebsiteSpec{Title: "t"}}))
	take := wire.Take{
		Token: "the token", Kind: "Website.web.example.com", Namespace: w.namespace, Name: "site", Class: "changed", Attempt: 1,
		ExpiresInSeconds: 60,
	}
	takes, done := make(chan wire.Take, 1), make(chan wire.DoneRequest, 1)
	takes <- take
	dispatcher := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case wire.PathTake:
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see when the worker goes
			rw.Header().Set("Content-Type", wire.TypeJSON)
			select {
			case take := <-takes:
				_ = json.NewEncoder(rw).Encode(wire.TakeResponse{Takes: []wire.Take{take}})
			case <-r.Context().Done():
			}
		case wire.PathDone:
			var end wire.DoneRequest
			_ = json.NewDecoder(r.Body).Decode(&end)
			done <- end
			rw.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(dispatcher.Close)
	path := func(name string) string { return filepath.Join(w.folder, name) }
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: dispatcher.Certificate().Raw})
	w.do(os.WriteFile(path("dispatcher.crt"), authority, 0o600))
	cmd := exec.CommandContext(t.Context(), "python3", path("worker.py"), "--state-dir", path("pages"),
		"--dispatchers", dispatcher.URL, "--token-file", path("token"), "--ca-file", path("dispatcher.crt"),
		"--server", w.server, "--server-token-file", path("token"), "--server-ca-file", path("ca.crt"))
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	w.do(cmd.Start())
	end := require.Receive(t, done, time.Minute, "it does not end its take")
	if end.Token != take.Token || end.Result != wire.ResultOK && end.Result != "" || end.AfterSeconds != 0 {
		t.Errorf("it ends with %+v", end)
	}
	w.do(cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, text.String())
	}
	w.agree("site", "was worked on")
}

// TestNamesake: children of a deleted Website become those of its namesake.
func TestNamesake(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.do(w.Create(t.Context(), &webv1.Website{ObjectMeta: w.named("site"), Spec: webv1.WebsiteSpec{Title: "t"}}))
		w.python("site", "", "0")
		w.agree("site", "is new")
		w.do(w.Delete(t.Context(), w.site("site"))) // there is no garbage collector
	}
}

// TestLate: a worker that was overtaken writes no status, and one whose take has expired writes nothing.
func TestLate(t *testing.T) {
	w := newWorld(t)
	w.do(w.Create(t.Context(), &webv1.Website{ObjectMeta: w.named("site"), Spec: webv1.WebsiteSpec{Title: "t"}}))
	none := w.versions("site")
	for n := range 3 {
		w.python("site", fmt.Sprintf("expires %d", n), "expired")
		if now := w.versions("site"); now != none {
			t.Errorf("with %d looks at the clock: %s, want %s", n, now, none)
		}
	}
	w.python("site", "expires 6", "expired")
	if site := w.site("site"); site.Status.ObservedGeneration != 0 || !w.pages().Published(w.key("site")) {
		t.Errorf("expired in between: %+v", site.Status)
	}
	w.python("site", "changed meanwhile", "0.2")
	if site := w.site("site"); site.Status.ObservedGeneration != 0 || site.Spec.Content != "newer" {
		t.Errorf("changed meanwhile: %+v", site)
	}
	w.python("site", "", "0")
	w.agree("site", "was overtaken")
}
