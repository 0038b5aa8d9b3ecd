package adopt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig/process"
)

// cluster is a control plane with the operator's manifests.
type cluster struct {
	*operator
	client.Client
	typed      *kubernetes.Clientset
	plane      *controlplane.ControlPlane
	namespace  string
	deployment appsv1.Deployment
	binary     string
}

// shares runs two replicas of the written operator, as a kubelet would: with the Deployment's arguments and environment, and
// with tokens of its ServiceAccount. They share the slots, and when one ends the other has them all.
func (o *operator) shares() {
	o.Helper()
	w := o.install()
	a, b := w.start("aaaa"), w.start("bbbb")
	w.owned(a, b)
	if w.name == "memcached" {
		w.memcacheds(0, 12, a, b)
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		o.Fatal(err)
	}
	if err := a.cmd.Wait(); err != nil {
		o.Errorf("%s after SIGTERM: %v", a.pod, err)
	}
	w.owned(b)
	if w.name == "memcached" {
		w.memcacheds(12, 16, b)
	}
	w.refused()
}

// install applies the operator's manifests, as kustomize builds them of what --write wrote.
func (o *operator) install() *cluster {
	o.Helper()
	plane := controlplane.For(o.T)
	w := &cluster{operator: o, plane: plane, namespace: o.name + "-system", binary: filepath.Join(o.dir, "bin", "manager")}
	o.run("go", "build", "-o", w.binary, "./cmd")
	var err error
	if w.Client, err = client.New(plane.Config(), client.Options{}); err != nil {
		o.Fatal(err)
	}
	if w.typed, err = kubernetes.NewForConfig(plane.Config()); err != nil {
		o.Fatal(err)
	}
	if err := plane.InstallCRDs(o.Context(), config.CRD); err != nil { // fleet's external kind
		o.Fatal(err)
	}
	folder := filepath.Join(o.dir, "config", "adopted")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		o.Fatal(err)
	}
	text := fmt.Sprintf("namespace: %s\nnamePrefix: %s-\nresources: [../crd, ../rbac, ../manager]\n", w.namespace, o.name)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		o.Fatal(err)
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // the namespace first, as `kubectl apply -k` sorts
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		o.Fatal(err)
	}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			o.Fatal(err)
		}
		if r.GetKind() == "CustomResourceDefinition" {
			if err := plane.InstallCRDs(o.Context(), text); err != nil {
				o.Fatal(err)
			}
			continue
		}
		var obj unstructured.Unstructured
		if err := yaml.Unmarshal(text, &obj.Object); err != nil {
			o.Fatal(err)
		}
		err = w.Apply(o.Context(), client.ApplyConfigurationFromUnstructured(&obj), client.FieldOwner("kustomize"))
		if err != nil {
			o.Fatalf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
		if r.GetKind() == "Deployment" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &w.deployment); err != nil {
				o.Fatal(err)
			}
		}
	}
	// A Lease that nobody holds: no leader can be at work, so the first start need not wait for one (docs/migrate.md).
	lease := o.report().Managers[0].LeaderElectionID
	if lease == "" {
		lease = w.leaseOf()
	}
	_, err = w.typed.CoordinationV1().Leases(w.namespace).Create(o.Context(),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease}}, metav1.CreateOptions{})
	if err != nil {
		o.Fatal(err)
	}
	return w
}

// leaseOf reads the name of the Lease in what was written into main.
func (w *cluster) leaseOf() string {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "cmd", "main.go"))
	if err != nil {
		w.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), `LeaderElectionID: "`)
	name, _, closed := strings.Cut(rest, `"`)
	if !found || !closed {
		w.Fatal("main.go has no LeaderElectionID in rota.Options")
	}
	return name
}

// replica is a process of the operator.
type replica struct {
	pod, probes string
	cmd         *exec.Cmd
	log         process.Output
}

// start starts a replica for a Pod from the Deployment's template.
func (w *cluster) start(suffix string) *replica {
	w.Helper()
	template := w.deployment.Spec.Template
	pod, err := w.typed.CoreV1().Pods(w.namespace).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: w.deployment.Name + "-5d8f7c9b4-" + suffix, Labels: template.Labels},
		Spec:       template.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	probes, err := process.FreeAddress(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	manager := pod.Spec.Containers[0]
	args := []string{"-kubeconfig", w.kubeconfig(pod)}
	for _, arg := range manager.Args {
		if strings.HasPrefix(arg, "--health-probe-bind-address=") { // what is the machine's, not the Pod's
			arg = "--health-probe-bind-address=" + probes
		}
		args = append(args, arg)
	}
	r := &replica{pod: pod.Name, probes: probes, cmd: exec.Command(w.binary, args...)}
	r.cmd.Args[0] = pod.Name // the user agent's first part
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "ENABLE_WEBHOOKS=false"}
	for _, e := range manager.Env {
		value := e.Value
		if e.ValueFrom != nil {
			fields := map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID)}
			if value = fields[e.ValueFrom.FieldRef.FieldPath]; value == "" {
				w.Fatalf("%s has %s", e.Name, e.ValueFrom.FieldRef.FieldPath)
			}
		}
		r.cmd.Env = append(r.cmd.Env, e.Name+"="+value)
	}
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.SysProcAttr = &r.log, &r.log, process.Attributes()
	if err := controlplane.Spawn(r.cmd); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
		if w.Failed() {
			w.Logf("%s: %v\n%s", r.pod, r.cmd.ProcessState, r.log.String())
		}
	})
	return r
}

// kubeconfig writes one with a token that is bound to the Pod, as the kubelet mounts it.
func (w *cluster) kubeconfig(pod *corev1.Pod) string {
	w.Helper()
	request, err := w.typed.CoreV1().ServiceAccounts(w.namespace).CreateToken(w.Context(), pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	cfg, k := rest.AnonymousClientConfig(w.plane.Config()), api.NewConfig()
	k.Clusters["c"] = &api.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["u"] = &api.AuthInfo{Token: request.Status.Token}
	k.Contexts["x"], k.CurrentContext = &api.Context{Cluster: "c", AuthInfo: "u"}, "x"
	path := filepath.Join(w.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		w.Fatal(err)
	}
	return path
}

// eventually polls until wrong returns "".
func (w *cluster) eventually(wrong func() string) {
	w.Helper()
	if err := await.Until(w.Context(), 100*time.Millisecond, 2*time.Minute, wrong); err != nil {
		w.Fatal(err)
	}
}

// owned waits until these replicas are ready and share all slots.
func (w *cluster) owned(replicas ...*replica) {
	w.Helper()
	w.eventually(func() string {
		cm, err := w.typed.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), w.name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		tab, err := table.Decode(cm.Data)
		if err != nil {
			return err.Error()
		}
		pods := map[string]bool{}
		for _, run := range tab.Runs {
			if run.Owner == "" || run.Next != "" || run.Unsettled {
				return "slots move"
			}
			m, _ := tab.Member(run.Owner)
			pods[m.Pod] = true
		}
		for _, r := range replicas {
			if !pods[r.pod] {
				return r.pod + " owns no slots"
			}
			if response, err := http.Get("http://" + r.probes + "/readyz"); err != nil {
				return err.Error()
			} else if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
				return fmt.Sprintf("%s answers %d to /readyz", r.pod, response.StatusCode)
			}
		}
		if len(pods) != len(replicas) {
			return fmt.Sprintf("%d members own slots, want %d", len(pods), len(replicas))
		}
		return ""
	})
}

// memcacheds creates objects, and waits until each has its Deployment. By the audit log each was made once, and each of
// these replicas made some.
func (w *cluster) memcacheds(from, to int, by ...*replica) {
	w.Helper()
	for i := from; i < to; i++ {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached",
			"metadata": map[string]any{"name": fmt.Sprintf("m-%d", i), "namespace": w.namespace},
			"spec":     map[string]any{"size": int64(1), "containerPort": int64(11211)},
		}}
		if err := w.Create(w.Context(), obj); err != nil {
			w.Fatal(err)
		}
	}
	w.eventually(func() string {
		for i := from; i < to; i++ {
			name := fmt.Sprintf("m-%d", i)
			if _, err := w.typed.AppsV1().Deployments(w.namespace).Get(w.Context(), name, metav1.GetOptions{}); err != nil {
				return err.Error()
			}
		}
		return ""
	})
	makers, times := map[string]bool{}, map[string]int{}
	for _, r := range w.requests() {
		if r.Verb == "create" && r.ObjectRef.Resource == "deployments" && r.ResponseStatus.Code == http.StatusCreated {
			times[r.ObjectRef.Name]++
			pod, _, _ := strings.Cut(r.UserAgent, "/")
			makers[pod] = true
		}
	}
	for i := from; i < to; i++ {
		if name := fmt.Sprintf("m-%d", i); times[name] != 1 {
			w.Errorf("Deployment %s was made %d times", name, times[name])
		}
	}
	for _, r := range by {
		if !makers[r.pod] {
			w.Errorf("%s made no Deployment: %v", r.pod, makers)
		}
	}
}

// request is one that the API server has answered.
type request struct {
	UserAgent, Verb string
	User            struct{ Username string }
	ObjectRef       struct{ Resource, APIGroup, Name string }
	ResponseStatus  struct {
		Code    int
		Message string
	}
}

// requests returns those of the operator, by the audit log.
func (w *cluster) requests() (out []request) {
	w.Helper()
	account := "system:serviceaccount:" + w.namespace + ":" + w.deployment.Spec.Template.Spec.ServiceAccountName
	for _, path := range w.plane.AuditLogs() {
		text, err := os.ReadFile(path)
		if err != nil {
			w.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var r request
			if !bytes.HasSuffix(line, []byte("\n")) || !bytes.Contains(line, []byte(account)) {
				continue
			}
			if err := json.Unmarshal(line, &r); err != nil {
				w.Fatal(err)
			}
			if r.User.Username == account {
				out = append(out, r)
			}
		}
	}
	return out
}

// refused fails the test if the API server has refused the operator anything.
func (w *cluster) refused() {
	w.Helper()
	all := w.requests()
	if len(all) == 0 {
		w.Error("the audit log has no request of the operator")
	}
	for _, r := range all {
		if r.ResponseStatus.Code == http.StatusForbidden {
			w.Errorf("refused: %s %s.%s %s: %s", r.Verb, r.ObjectRef.Resource, r.ObjectRef.APIGroup, r.ObjectRef.Name,
				r.ResponseStatus.Message)
		}
	}
}
