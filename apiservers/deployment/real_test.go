package deployment

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/deployment/hosttest"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane/assets"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/process"
)

// TestRuns: the manifests are good for a real API server, and the command in them is one.
//
// An etcd with TLS and a static API server run with the host's files. The static one takes the manifests in a dry run.
// Then a second API server runs: the container's command, with the files as the kubelet would mount them. Both serve
// the same data, and both are endpoints of the Service "kubernetes", as was asked for, until the second one ends.
func TestRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real servers: not under -short")
	}
	programs, err := assets.Find(t.Context(), os.Stderr)
	require.NoError(t, err)
	h := hosttest.New(t)
	etcd := startEtcd(t, h, programs)

	// The static one, with its files in the host's folder and its etcd where it really is.
	text := manifest(t)
	var pod corev1.Pod
	require.NoError(t, yaml.Unmarshal([]byte(text), &pod))
	paths := strings.NewReplacer("=/etc/kubernetes/policies", "="+h.Root+"/srv/policies", "=/etc", "="+h.Root+"/etc")
	static, _ := startServer(t, h, programs, "static", etcd, pod.Spec.Containers[0].Command, paths)

	got := files(t, text, options(h))
	apart, err := document((&Plan{o: Options{Namespace: "api"}}).object("namespace")) // in kube-system there is none
	require.NoError(t, err)
	got[namespaceFile] = string(apart)
	dryRun(t, static, got)

	o := options(h)
	o.JoinKubernetes = true
	o.Set = map[string][]string{"shutdown-delay-duration": {"3s"}, "shutdown-watch-termination-grace-period": {"1s"}}
	got = files(t, text, o)
	// The Deployment's, with its files where the kubelet mounts them: in another folder that stands for /.
	d := decode[appsv1.Deployment](t, got["manifests/deployment.yaml"])[0]
	root := t.TempDir()
	for name, text := range mountedFiles(t, d, got) {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o440))
	}
	paths = strings.NewReplacer("=/etc", "="+root+"/etc", "$(POD_IP)", "10.244.0.7")
	scaled, server := startServer(t, h, programs, "scaled", etcd, d.Spec.Template.Spec.Containers[0].Command, paths)

	sameData(t, static, scaled)
	endpoints(t, static, "10.0.0.11", "10.244.0.7")
	ends(t, scaled, server)
	endpoints(t, static, "10.0.0.11")
}

// startEtcd starts an etcd that only talks to clients with certificates, and returns its URL.
func startEtcd(t *testing.T, h *hosttest.Host, programs assets.Folder) string {
	url, peer := "https://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t)
	dir := h.Root + pki + "etcd/"
	start(t, "etcd", programs.Etcd(), "--name=etcd", "--data-dir="+t.TempDir(), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=etcd="+peer,
		"--cert-file="+dir+"server.crt", "--key-file="+dir+"server.key", "--client-cert-auth",
		"--trusted-ca-file="+dir+"ca.crt")
	return url
}

// startServer runs the command of a container until it is ready, and returns an administrator's configuration for it.
// Only what a process on loopback must have differently is changed: paths, port, address, and where etcd is.
func startServer(t *testing.T, h *hosttest.Host, programs assets.Folder, name, etcd string, command []string, paths *strings.Replacer) (*rest.Config, *process.Process) {
	t.Helper()
	port := freePort(t)
	words := []string{programs.APIServer(), "--bind-address=127.0.0.1"}
	for _, word := range command[1:] {
		switch flag, _, _ := strings.Cut(word, "="); flag {
		case "--etcd-servers":
			word = flag + "=" + etcd
		case "--secure-port":
			word = flag + "=" + port
		}
		words = append(words, paths.Replace(word))
	}
	server := start(t, name, words...)
	config := &rest.Config{Host: "https://127.0.0.1:" + port, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAFile: h.Root + pki + "ca.crt", CertFile: h.Root + pki + "admin.crt", KeyFile: h.Root + pki + "admin.key",
	}}
	// Asked as the kubelet and proxies do: without credentials.
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer anonymous.CloseIdleConnections()
	err := await.Until(t.Context(), 100*time.Millisecond, 2*time.Minute, func() string {
		require.NoError(t, server.Failure())
		resp, err := anonymous.Get(config.Host + "/readyz")
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	if err != nil {
		t.Fatalf("%s is not ready: %v; its log ends:\n%s", name, err, server.Tail())
	}
	return config, server
}

func start(t *testing.T, name string, words ...string) *process.Process {
	t.Helper()
	p, err := process.Start(process.Options{
		Name: name, Command: words, Variable: "ROTA_TEST", Log: filepath.Join(t.TempDir(), name+".log"),
	})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := process.FreePort(t.Context())
	require.NoError(t, err)
	return strconv.Itoa(port)
}

// warnings collects what the API server warns of.
type warnings struct{ text []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.text = append(w.text, text) }

// dryRun has the API server take each object in a dry run, with the strictest look at fields and at the Pod's security.
func dryRun(t *testing.T, config *rest.Config, files map[string]string) {
	t.Helper()
	w := &warnings{}
	config = rest.CopyConfig(config)
	config.WarningHandler = w
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	core, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	const warn = `{"metadata":{"labels":{"pod-security.kubernetes.io/warn":"restricted"}}}`
	eventually(t, func() error { // the API server makes the namespace soon after it is ready
		_, err := core.CoreV1().Namespaces().Patch(t.Context(), "kube-system", "application/merge-patch+json", []byte(warn),
			metav1.PatchOptions{})
		return err
	})
	taken := 0
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for _, o := range decode[unstructured.Unstructured](t, text) {
			gvk := o.GroupVersionKind()
			gvr, _ := meta.UnsafeGuessKindToResource(gvk)
			options := metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "test"}
			if _, err := client.Resource(gvr).Namespace(o.GetNamespace()).Apply(t.Context(), o.GetName(), &o, options); err != nil {
				t.Errorf("%s: %s %s: %v", name, gvk.Kind, o.GetName(), err)
			}
			taken++
		}
	}
	if taken != 13 {
		t.Errorf("%d objects in dry runs, want 7 Secrets and 6 others", taken)
	}
	if len(w.text) > 0 {
		t.Errorf("warnings: %q", w.text)
	}
	// Without a part of its security context the Deployment is warned of: the check above can fail.
	bad := decode[appsv1.Deployment](t, files["manifests/deployment.yaml"])[0]
	bad.Spec.Template.Spec.SecurityContext = nil
	_, err = core.AppsV1().Deployments(bad.Namespace).Create(t.Context(), &bad, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || len(w.text) == 0 {
		t.Errorf("error %v, %d warnings of a Pod that may be root", err, len(w.text))
	}
}

// sameData: what is written through one API server, a Secret that is encrypted at rest, is read through the other.
func sameData(t *testing.T, static, scaled *rest.Config) {
	t.Helper()
	write, read := kubernetes.NewForConfigOrDie(scaled), kubernetes.NewForConfigOrDie(static)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "seen"}, StringData: map[string]string{"k": "v"}}
	eventually(t, func() error {
		_, err := write.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	got, err := read.CoreV1().Secrets("default").Get(t.Context(), "seen", metav1.GetOptions{})
	if err != nil || string(got.Data["k"]) != "v" {
		t.Errorf("the other API server has %v, %v", got, err)
	}
}

// endpoints: the Service "kubernetes" comes to have these addresses.
func endpoints(t *testing.T, config *rest.Config, want ...string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	eventually(t, func() error {
		slice, err := client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var addresses []string
		for _, e := range slice.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		if slices.Sort(addresses); !slices.Equal(addresses, want) {
			return fmt.Errorf("the Service kubernetes has %q, want %q", addresses, want)
		}
		return nil
	})
}

// ends: told to end, the API server says that it is not ready while it still answers, so that proxies leave it in time.
// Then it ends without an error.
func ends(t *testing.T, config *rest.Config, server *process.Process) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config).Discovery().RESTClient()
	require.NoError(t, server.End(syscall.SIGTERM))
	eventually(t, func() error {
		if _, err := client.Get().AbsPath("/readyz").DoRaw(t.Context()); err == nil {
			return errors.New("it is still ready")
		}
		return nil
	})
	if _, err := client.Get().AbsPath("/livez").DoRaw(t.Context()); err != nil {
		t.Errorf("it is not ready and does not answer either: %v", err)
	}
	require.Receive(t, server.Done(), time.Minute, "it has not ended")
	require.NoError(t, server.Failure())
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	err := await.Until(context.WithoutCancel(t.Context()), 100*time.Millisecond, time.Minute, func() string {
		if err := try(); err != nil {
			return err.Error()
		}
		return ""
	})
	require.NoError(t, err)
}
