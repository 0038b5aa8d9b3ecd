package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/split"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/controlplane/assets"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/process"
)

const (
	splitReplicas = 3
	splitLimit    = time.Minute
	undividedName = "kube-controller-manager"
	// tokenController runs even where --controllers excludes it.
	tokenController = "serviceaccount-token-controller"
)

// TestSplitForReal migrates from an undivided kube-controller-manager to three groups of three replicas, has them
// work, takes away a group and a leader, and goes back. All processes are the real ones, with the user and the
// permissions that kube-controller-manager has.
func TestSplitForReal(t *testing.T) {
	t.Parallel() // it waits for leases most of the time
	plane := controlplane.New(t, controlplane.Options{})
	s := newSplitStage(t, plane)
	begun := time.Now()
	log := func(format string, args ...any) {
		t.Helper()
		t.Logf("%4.1fs  "+format, append([]any{time.Since(begun).Seconds()}, args...)...)
	}

	// The undivided one works. Its list has every alias, and excludes the token controller in vain.
	undivided := s.start(undividedName, s.undivided...)
	s.until("the undivided leads", func() string { return s.led(undividedName) })
	s.checkAliases(undivided)
	before := s.runs(undivided)
	if len(before) < 30 || !slices.Contains(before, tokenController) {
		t.Errorf("the undivided one runs %q", before)
	}
	log("undivided: leads, and runs %d controllers", len(before))

	// The groups start, and wait for the hold to end.
	s.checkPermissions()
	s.apply("rbac.yaml")
	s.apply("hold-groups.yaml")
	for _, g := range s.groups {
		for range splitReplicas {
			s.start(g.name, g.words...)
		}
	}
	for _, p := range s.all() {
		s.until(p.name+" is healthy", p.health)
	}
	for _, p := range s.all() {
		if p != undivided && p.leads() {
			t.Errorf("%s leads although its lease is held", p.name)
		}
	}
	if problem := s.led(undividedName); problem != "" {
		t.Errorf("the undivided one no longer leads: %s", problem)
	}
	log("groups: %d replicas wait", len(s.all())-1)

	// The undivided one ends by itself.
	held := time.Now()
	s.apply("hold-undivided.yaml")
	s.until("the undivided leader ends", undivided.Lingers)
	log("undivided: ended %.1fs after its lease was held (lease 6s, renew deadline 5s)", time.Since(held).Seconds())

	released := time.Now()
	s.delete("hold-groups.yaml")
	for _, g := range s.groups {
		s.until("group "+g.name+" leads", func() string { return s.led(g.lease) })
	}
	log("groups: all lead %.1fs after the hold ended", time.Since(released).Seconds())
	var after []string
	for _, g := range s.groups {
		runs := s.runs(s.leader(g.name))
		log("group %s runs %d controllers", g.name, len(runs))
		after = append(after, runs...)
	}
	slices.Sort(after)
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("what runs before and after (-undivided +groups):\n%s", d)
	}
	back := s.start(undividedName, s.undivided...) // as a tool might
	s.until("the undivided one is healthy", back.health)

	s.checkWork("all")
	log("all groups: everything works")
	s.checkCommand()

	// Without the garbage group the others go on, and garbage stays until it is back.
	s.end("garbage")
	garbage := s.makeGarbage()
	s.checkWork("others")
	if problem := garbage(); !strings.Contains(problem, "is still there") {
		t.Errorf("garbage was collected although nobody collects it: %q", problem)
	}
	log("without garbage: the others work, and garbage stays")
	for range splitReplicas {
		s.start("garbage", s.group("garbage").words...)
	}
	s.until("garbage is collected", garbage)
	log("garbage: back, and done")

	// Another replica takes over from a leader that is killed.
	s.until("a leader of workloads", func() string { return s.led(s.group("workloads").lease) })
	leader := s.leader("workloads")
	killed := time.Now()
	leader.Kill()
	s.until("another leader of workloads", func() string {
		if p := s.leader("workloads"); p == nil || p == leader {
			return "none yet"
		}
		return s.led(s.group("workloads").lease)
	})
	log("workloads: another replica leads %.1fs after the leader was killed (lease 6s)", time.Since(killed).Seconds())
	s.checkWork("workloads")
	log("workloads: work goes on")
	if back.leads() || back.Lingers() == "" {
		t.Error("an undivided process that was started meanwhile does not wait")
	}

	// Back.
	var leaders []*kcm
	for _, g := range s.groups {
		leaders = append(leaders, s.leader(g.name))
	}
	s.apply("hold-groups.yaml")
	for _, p := range leaders {
		s.until("the leader of "+p.name+" ends", p.Lingers)
	}
	s.delete("hold-undivided.yaml")
	s.until("the undivided one leads", func() string { return s.led(undividedName) })
	s.until("it is the undivided process that leads", func() string { // it says so after it has written the Lease
		if back.leads() {
			return ""
		}
		return "it does not"
	})
	for _, g := range s.groups {
		s.end(g.name)
	}
	s.checkWork("all")
	log("back: the undivided one works")
}

// A splitStage runs kube-controller-managers against a control plane.
type splitStage struct {
	t         *testing.T
	plane     *controlplane.ControlPlane
	client    *kubernetes.Clientset
	objects   client.Client
	binary    string
	out       string // what `rota split kcm --out` wrote
	manifest  string
	undivided []string
	groups    []splitGroup
	processes []*kcm
	made      int // objects, for their names
}

type splitGroup struct {
	name, lease string
	words       []string // flags
}

func newSplitStage(t *testing.T, plane *controlplane.ControlPlane) *splitStage {
	t.Helper()
	s := &splitStage{t: t, plane: plane, out: filepath.Join(t.TempDir(), "split")}
	var err error
	if s.binary, err = assets.ControllerManager(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	if s.client, err = kubernetes.NewForConfig(plane.Config()); err != nil {
		t.Fatal(err)
	}
	if s.objects, err = client.New(plane.Config(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig, pki := filepath.Join(dir, "kcm.conf"), filepath.Join(plane.Dir(), "pki")
	require.NoError(t, plane.WriteUserKubeconfig(kubeconfig, "system:kube-controller-manager"))
	s.manifest = write(t, dir, "kube-controller-manager.yaml", strings.NewReplacer(
		"/etc/kubernetes/controller-manager.conf", kubeconfig,
		"/etc/kubernetes/pki/front-proxy-ca.crt", filepath.Join(pki, "ca.crt"),
		"/etc/kubernetes/pki/sa.key", filepath.Join(pki, "service-account.key"),
		"/etc/kubernetes/pki", pki,
		"--leader-elect=true\n", "--leader-elect=true\n    - --leader-elect-lease-duration=6s\n"+
			"    - --leader-elect-renew-deadline=5s\n    - --leader-elect-retry-period=500ms\n",
	).Replace(read(t, kubeadmManifest)))
	if text, err := splitRun(t, "", "--manifest", s.manifest, "--out", s.out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	s.undivided = wordsOf(t, s.manifest)
	var aliases []string
	for _, k := range split.Known() {
		aliases = append(aliases, k.Aliases...)
	}
	for i, word := range s.undivided {
		if strings.HasPrefix(word, "--controllers=") {
			s.undivided[i] = "--controllers=-" + tokenController + "," + strings.Join(append(aliases, "*"), ",")
		}
	}
	for _, name := range []string{"workloads", "garbage", "cluster"} {
		path := filepath.Join(s.out, "manifests", undividedName+"-"+name+".yaml")
		s.groups = append(s.groups, splitGroup{name, undividedName + "-" + name, wordsOf(t, path)})
	}
	t.Cleanup(func() {
		for _, p := range s.processes {
			p.Kill()
		}
	})
	return s
}

// wordsOf returns the flags in a manifest.
func wordsOf(t *testing.T, path string) []string {
	t.Helper()
	found, err := split.ParseProcesses(path, "", []byte(read(t, path)))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", path, found, err)
	}
	return found[0].Command.Words()[1:]
}

func (s *splitStage) group(name string) splitGroup {
	i := slices.IndexFunc(s.groups, func(g splitGroup) bool { return g.name == name })
	return s.groups[i]
}

func (s *splitStage) until(what string, check func() string) {
	s.t.Helper()
	if err := await.Until(s.t.Context(), 50*time.Millisecond, splitLimit, check); err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

// A kcm is a kube-controller-manager that runs as a child.
type kcm struct {
	*process.Process
	name, log string
	port      int
}

// start runs one with the flags of a manifest, on a free port: here all are on one machine.
func (s *splitStage) start(name string, words ...string) *kcm {
	s.t.Helper()
	port, err := process.FreePort(s.t.Context())
	require.NoError(s.t, err)
	p := &kcm{name: name, port: port, log: filepath.Join(s.t.TempDir(), "log")}
	command := append([]string{s.binary}, words...)
	p.Process, err = process.Start(process.Options{
		Name: name, Command: append(command, "--secure-port="+strconv.Itoa(port)), Log: p.log, Variable: "ROTA_UNUSED",
	})
	require.NoError(s.t, err)
	s.processes = append(s.processes, p)
	return p
}

// leads tells whether the process has been elected and runs.
func (p *kcm) leads() bool {
	text, err := os.ReadFile(p.log)
	return err == nil && strings.Contains(strings.ToLower(string(text)), "successfully acquired lease") && p.Lingers() != ""
}

// health asks what the manifests' probes ask.
func (p *kcm) health() string {
	if p.Lingers() == "" {
		return fmt.Sprintf("it ended: %s", p.Tail())
	}
	return p.get(p.anonymous(), "/healthz", func([]byte) error { return nil })
}

func (p *kcm) anonymous() *rest.Config {
	return &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", p.port), TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

func (p *kcm) get(config *rest.Config, path string, use func([]byte) error, params ...string) string {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := client.RESTClient().Get().AbsPath(path)
	for _, name := range params {
		request.Param(name, "true")
	}
	body, err := request.DoRaw(ctx)
	if err == nil {
		err = use(body)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// all are the processes that run.
func (s *splitStage) all() []*kcm {
	return slices.DeleteFunc(slices.Clone(s.processes), func(p *kcm) bool { return p.Lingers() == "" })
}

// runs returns the controllers that a leader runs: its health has a check for each.
func (s *splitStage) runs(p *kcm) []string {
	s.t.Helper()
	var out []string
	s.until("the controllers of "+p.name, func() string {
		out = nil
		problem := p.get(p.anonymous(), "/healthz", func(body []byte) error {
			for _, k := range split.Known() {
				if strings.Contains(string(body), "[+]"+k.Name+" ok\n") {
					out = append(out, k.Name)
				}
			}
			return nil
		}, "verbose")
		if problem == "" && len(out) == 0 {
			problem = "none run yet"
		}
		return problem
	})
	return out
}

// leader returns the process of a group that leads.
func (s *splitStage) leader(name string) *kcm {
	for _, p := range s.all() {
		if p.name == name && p.leads() {
			return p
		}
	}
	return nil
}

// end kills the processes of a group.
func (s *splitStage) end(name string) {
	for _, p := range s.all() {
		if p.name == name {
			p.Kill()
		}
	}
}

// led says why nobody leads by a lease, or "".
func (s *splitStage) led(lease string) string {
	l, err := s.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(s.t.Context(), lease, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	state := leaseState(*l, time.Now())
	if state.Holder == "" || state.Holder == split.Holder || state.Age > state.Duration {
		return fmt.Sprintf("%s is held by %q for %v", lease, state.Holder, state.Age)
	}
	return ""
}

// each calls do for each object in a file that was written.
func (s *splitStage) each(file string, do func(*unstructured.Unstructured) error) {
	s.t.Helper()
	for _, text := range strings.Split(read(s.t, filepath.Join(s.out, file)), "\n---\n") {
		o := &unstructured.Unstructured{}
		require.NoError(s.t, yaml.Unmarshal([]byte(text), &o.Object))
		if err := do(o); err != nil {
			s.t.Fatalf("%s: %v", file, err)
		}
	}
}

// apply does what `kubectl apply` does.
func (s *splitStage) apply(file string) {
	s.t.Helper()
	s.each(file, func(o *unstructured.Unstructured) error {
		return s.objects.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"),
			client.ForceOwnership)
	})
}

func (s *splitStage) delete(file string) {
	s.t.Helper()
	s.each(file, func(o *unstructured.Unstructured) error { return s.objects.Delete(s.t.Context(), o) })
}

// checkAliases: a process that was given aliases has the controllers' names in its configuration.
func (s *splitStage) checkAliases(p *kcm) {
	s.t.Helper()
	want := []string{"-" + tokenController}
	for _, k := range split.Known() {
		for range k.Aliases {
			want = append(want, k.Name)
		}
	}
	want = append(want, "*")
	config := s.plane.Config()
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", p.port)
	config.Insecure, config.CAData, config.CAFile = true, nil, ""
	s.until("the configuration", func() string {
		return p.get(config, "/configz", func(body []byte) error {
			var doc map[string]struct {
				Generic struct{ Controllers []string }
			}
			if err := json.Unmarshal(body, &doc); err != nil {
				return err
			}
			if d := cmp.Diff(want, doc["kubecontrollermanager.config.k8s.io"].Generic.Controllers); d != "" {
				s.t.Errorf("what the binary takes aliases for (-table +binary):\n%s", d)
			}
			return nil
		})
	})
}

// checkPermissions: in kube-system kube-controller-manager may use any lease, elsewhere rbac.yaml takes care of it.
func (s *splitStage) checkPermissions() {
	s.t.Helper()
	lease := func(namespace string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:kube-controller-manager",
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: undividedName + "-garbage",
			},
		}}
		review, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(s.t.Context(), review, metav1.CreateOptions{})
		require.NoError(s.t, err)
		return review.Status.Allowed
	}
	if !lease(metav1.NamespaceSystem) || lease("default") {
		s.t.Error("want leases of groups allowed in kube-system, and not in default")
	}
	elsewhere := filepath.Join(s.t.TempDir(), "elsewhere")
	manifest := write(s.t, s.t.TempDir(), "kcm.yaml", strings.Replace(read(s.t, s.manifest), "--leader-elect=true", "--leader-elect-resource-namespace=default", 1))
	if text, err := splitRun(s.t, "", "--manifest", manifest, "--out", elsewhere); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	out := s.out
	s.out = elsewhere
	s.apply("rbac.yaml")
	s.out = out
	s.until("permission in another namespace", func() string {
		if lease("default") {
			return ""
		}
		return "not allowed"
	})
}

// checkCommand: --check-cluster reads the Pods that a kubelet would have made, and the real leases.
func (s *splitStage) checkCommand() {
	s.t.Helper()
	ctx, pods := s.t.Context(), s.client.CoreV1().Pods(metav1.NamespaceSystem)
	for _, g := range s.groups {
		for node := range splitReplicas {
			var pod corev1.Pod
			manifest := read(s.t, filepath.Join(s.out, "manifests", undividedName+"-"+g.name+".yaml"))
			require.NoError(s.t, yaml.Unmarshal([]byte(manifest), &pod))
			pod.Name += "-node-" + strconv.Itoa(node)
			pod.Spec.NodeName = "node-" + strconv.Itoa(node)
			pod.Spec.Priority = nil // admission fills it in
			_, err := pods.Create(ctx, &pod, metav1.CreateOptions{})
			require.NoError(s.t, err)
		}
	}
	args := []string{"--manifest", s.manifest, "--check-cluster", "--kubeconfig", s.plane.Kubeconfig()}
	if text, err := splitRun(s.t, "", args...); err != nil || text != "as planned: 9 processes in 3 groups\n" {
		s.t.Errorf("%v: %s", err, text)
	}
	for node := range splitReplicas {
		require.NoError(s.t, pods.Delete(ctx, undividedName+"-garbage-node-"+strconv.Itoa(node),
			metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	}
	if text, err := splitRun(s.t, "", args...); err == nil || !strings.Contains(text, "garbage-collector-controller runs nowhere, want group garbage\n") {
		s.t.Errorf("without the Pods of a group: %v: %s", err, text)
	}
}

func (s *splitStage) name(prefix string) string {
	s.made++
	return prefix + "-" + strconv.Itoa(s.made)
}

func (s *splitStage) namespace() string {
	s.t.Helper()
	ns, err := s.client.CoreV1().Namespaces().Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("work")}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	return ns.Name
}

// gone returns a check that an object no longer exists.
func gone(what string, get func() error) func() string {
	return func() string {
		if err := get(); err == nil {
			return what + " is still there"
		} else if !apierrors.IsNotFound(err) {
			return err.Error()
		}
		return ""
	}
}

// makeGarbage leaves a dependent without its owner and a namespace to empty. It returns a check that both are gone.
func (s *splitStage) makeGarbage() func() string {
	s.t.Helper()
	ctx, ns := s.t.Context(), s.namespace()
	maps := s.client.CoreV1().ConfigMaps(ns)
	owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID,
	}}}}
	_, err = maps.Create(ctx, child, metav1.CreateOptions{})
	err = errors.Join(err, maps.Delete(ctx, owner.Name, metav1.DeleteOptions{}))
	doomed := s.namespace()
	err = errors.Join(err, s.client.CoreV1().Namespaces().Delete(ctx, doomed, metav1.DeleteOptions{}))
	require.NoError(s.t, err)
	return func() string {
		for _, check := range []func() string{
			gone("the child of a deleted owner", func() error { _, err := maps.Get(ctx, "child", metav1.GetOptions{}); return err }),
			gone("a deleted namespace", func() error {
				_, err := s.client.CoreV1().Namespaces().Get(ctx, doomed, metav1.GetOptions{})
				return err
			}),
		} {
			if problem := check(); problem != "" {
				return problem
			}
		}
		return ""
	}
}

// checkWork has the controllers of groups work: of all, of workloads, or of the others than garbage.
func (s *splitStage) checkWork(which string) {
	s.t.Helper()
	ns := s.namespace()
	s.checkDeployment(ns)
	if which != "workloads" {
		s.checkAccounts(ns)
	}
	if which == "all" {
		s.until("garbage is collected", s.makeGarbage())
	}
}

// checkDeployment: a Deployment gets its Pods.
func (s *splitStage) checkDeployment(ns string) {
	s.t.Helper()
	ctx, labels := s.t.Context(), map[string]string{"app": "web"}
	_, err := s.client.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.until("the Deployment has Pods", func() string {
		list, err := s.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil || len(list.Items) != 2 {
			return fmt.Sprintf("%v, %d Pods", err, len(list.Items))
		}
		return ""
	})
}

// checkAccounts: a namespace gets its ServiceAccount and the root certificate.
func (s *splitStage) checkAccounts(ns string) {
	s.t.Helper()
	ctx, core := s.t.Context(), s.client.CoreV1()
	s.until("the default ServiceAccount", func() string {
		_, err := core.ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			_, err = core.ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}
