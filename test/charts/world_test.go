package charts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/process"
)

// world is a namespace of a real control plane, in which a release is installed.
type world struct {
	client.Client
	typed            *kubernetes.Clientset
	t                *testing.T
	plane            *controlplane.ControlPlane
	namespace, pages string
	deployment       *appsv1.Deployment // of the release
	replicas         int
	fence            bool // the release has one
}

func newWorld(t *testing.T) *world {
	t.Helper()
	plane := controlplane.For(t)
	require.NoError(t, plane.InstallCRDs(t.Context(), config.CRD))
	c, err := client.New(plane.Config(), client.Options{})
	require.NoError(t, err)
	cfg := plane.Config()
	cfg.QPS = -1
	typed, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return &world{Client: c, typed: typed, t: t, plane: plane, namespace: controlplane.Namespace(t), pages: t.TempDir()}
}

func (w *world) namespaces(names ...string) {
	w.t.Helper()
	for _, name := range names {
		_, err := w.typed.CoreV1().Namespaces().Create(w.t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
	}
}

// served says whether this control plane has the kind: it has not the Prometheus operator's.
func served(obj *unstructured.Unstructured) bool {
	return !strings.HasPrefix(obj.GetAPIVersion(), "monitoring.coreos.com/")
}

// apply applies objects with server-side apply, which refuses unknown fields.
func (w *world) apply(objects []*unstructured.Unstructured, o ...client.ApplyOption) {
	w.t.Helper()
	for _, obj := range objects {
		if !served(obj) {
			continue
		}
		o := append([]client.ApplyOption{client.FieldOwner("helm"), client.ForceOwnership}, o...)
		if err := w.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(obj.DeepCopy()), o...); err != nil {
			w.t.Errorf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// install applies what the chart renders with values of testdata, in this namespace. Names have the namespace's in
// them, because ClusterRoles are the cluster's.
func (w *world) install(name string) {
	w.t.Helper()
	var objects []*unstructured.Unstructured
	for _, obj := range rendered(w.t, name) {
		text, err := yaml.Marshal(obj.Object)
		require.NoError(w.t, err)
		here := strings.NewReplacer("namespace: operators", "namespace: "+w.namespace, "website-operator", "website-"+w.namespace,
			"operators", w.namespace)
		objects = append(objects, parse(w.t, []byte(here.Replace(string(text))))...)
	}
	w.apply(objects)
	w.deployment = into[appsv1.Deployment](w.t, only(objects, "Deployment")[0])
}

// account is the user that the members are.
func (w *world) account() string {
	return "system:serviceaccount:" + w.namespace + ":" + w.deployment.Spec.Template.Spec.ServiceAccountName
}

// replica is a process of the operator that runs as a kubelet would run it: for a Pod from the Deployment's template,
// with its arguments and environment, and with a token of its ServiceAccount.
type replica struct {
	t   *testing.T
	pod string
	cmd *exec.Cmd
	log process.Output
}

// operator builds the example operator.
var operator = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "website")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "website")
	cmd := exec.Command("go", "build", "-o", path, "./examples/website/sharded")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// start starts one more replica.
func (w *world) start() *replica {
	w.t.Helper()
	binary, err := operator()
	require.NoError(w.t, err)
	w.replicas++
	template := w.deployment.Spec.Template
	pod, err := w.typed.CoreV1().Pods(w.namespace).Create(w.t.Context(), &corev1.Pod{
		// As the Deployment's controller and the ReplicaSet's name it, so that the member knows its workload.
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-5d8f7c9b4-bcdf%d", w.deployment.Name, w.replicas+1),
			Labels: template.Labels},
		Spec: template.Spec,
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	manager := pod.Spec.Containers[0]
	args := append([]string{"-kubeconfig", w.kubeconfig(pod)}, manager.Args...)
	for i, arg := range args { // what is the machine's, not the Pod's
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--state-dir":
			args[i] = name + "=" + w.pages
		case "--health-probe-bind-address", "--metrics-bind-address":
			args[i] = name + "=0"
		}
	}
	r := &replica{t: w.t, pod: pod.Name, cmd: exec.Command(binary, args...)}
	r.cmd.Args[0] = pod.Name // the user agent's first part
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, e := range manager.Env {
		value := e.Value
		if e.ValueFrom != nil {
			switch path := e.ValueFrom.FieldRef.FieldPath; path {
			case "metadata.name":
				value = pod.Name
			case "metadata.namespace":
				value = pod.Namespace
			case "metadata.uid":
				value = string(pod.UID)
			default:
				w.t.Fatalf("%s has %s", e.Name, path)
			}
		}
		r.cmd.Env = append(r.cmd.Env, e.Name+"="+value)
	}
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.SysProcAttr = &r.log, &r.log, process.Attributes()
	require.NoError(w.t, controlplane.Spawn(r.cmd))
	w.t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
		if w.t.Failed() {
			w.t.Logf("%s: %v\n%s", r.pod, r.cmd.ProcessState, r.log.String())
		}
	})
	return r
}

// kubeconfig writes one with a token that is bound to the Pod, as the kubelet mounts it.
func (w *world) kubeconfig(pod *corev1.Pod) string {
	w.t.Helper()
	token := w.plane.TokenOf(w.t, w.namespace, pod.Spec.ServiceAccountName, authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	})
	cfg, k := rest.AnonymousClientConfig(w.plane.Config()), api.NewConfig()
	k.Clusters["c"] = &api.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["u"] = &api.AuthInfo{Token: token}
	k.Contexts["x"], k.CurrentContext = &api.Context{Cluster: "c", AuthInfo: "u"}, "x"
	path := filepath.Join(w.t.TempDir(), "kubeconfig")
	require.NoError(w.t, clientcmd.WriteToFile(*k, path))
	return path
}

// leave ends the replica as a kubelet does, and waits until it has handed over.
func (r *replica) leave() {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGTERM))
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("%s after SIGTERM: %v", r.pod, err)
	}
}

// eventually polls until wrong returns "".
func (w *world) eventually(limit time.Duration, wrong func() string) {
	w.t.Helper()
	require.NoError(w.t, await.Until(w.t.Context(), 100*time.Millisecond, limit, wrong))
}

// owners returns how many slots each Pod owns, by the table.
func (w *world) owners() map[string]int {
	out := map[string]int{}
	cm, err := w.typed.CoreV1().ConfigMaps(w.namespace).Get(w.t.Context(), "website", metav1.GetOptions{})
	if err != nil {
		return out
	}
	tab, err := table.Decode(cm.Data)
	if err != nil {
		return out
	}
	for id, n := range tab.Counts() {
		if m, _ := tab.Member(id); n > 0 {
			out[m.Pod] = n
		}
	}
	return out
}

// request is one that the API server has answered.
type request struct {
	UserAgent, Verb, Stage string
	User                   struct{ Username string }
	ObjectRef              struct{ Resource, Subresource, APIGroup, Namespace, Name string }
	ResponseStatus         struct {
		Code    int
		Message string
	}
}

// requests returns those of the members, by the audit log.
func (w *world) requests() (out []request) {
	w.t.Helper()
	for _, path := range w.plane.AuditLogs() {
		file, err := os.Open(path)
		require.NoError(w.t, err)
		text, err := io.ReadAll(file)
		_ = file.Close()
		require.NoError(w.t, err)
		for line := range bytes.Lines(text) {
			var e request
			if !bytes.HasSuffix(line, []byte("\n")) || !bytes.Contains(line, []byte(w.account())) {
				continue
			}
			require.NoError(w.t, json.Unmarshal(line, &e))
			if e.User.Username == w.account() {
				out = append(out, e)
			}
		}
	}
	return out
}
