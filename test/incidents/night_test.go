package incidents_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/proxy"
)

const (
	name     = "website"
	slots    = 64
	websites = 24
	// patience bounds every wait: it only has to be longer than any machine takes.
	patience = 6 * time.Minute
)

// command is the path of the rota command, which is built once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rota-incidents-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rota")
	out, err := exec.Command("go", "build", "-o", path, "../../cmd/rota").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build rota: %w\n%s", err, out)
	}
	return path, nil
})

// night is an operator with three replicas in a namespace of its own, and somebody on call.
type night struct {
	t         *testing.T
	plane     *controlplane.ControlPlane
	namespace string
	client    client.Client
	fleet     *rig.Fleet
	rota      string
	// version is the one in which Websites are read and changed.
	version string
	// fault is that of all replicas' proxies. converts is false while a title cannot be converted.
	fault    proxy.Faults
	converts atomic.Bool
}

// newNight starts the operator; change says how it differs from that of other nights.
func newNight(t *testing.T, plane *controlplane.ControlPlane, change func(*rig.Operator)) *night {
	t.Helper()
	path, err := command()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	scheme := rig.Scheme()
	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	require.NoError(t, errors.Join(err, apiextensionsv1.AddToScheme(scheme)))
	require.NoError(t, plane.InstallCRDs(t.Context(), config.CRD))
	n := &night{
		t: t, plane: plane, namespace: plane.Namespace(t), client: c, rota: path, version: webv1.GroupVersion.Version,
	}
	n.fleet = &rig.Fleet{
		Dir: t.TempDir(), Command: []string{self}, Restart: true,
		Operator: rig.Operator{
			Rota: name, Namespace: n.namespace, Sites: n.namespace, Slots: slots, Lease: *lease, StatusOnly: true,
			Titles: true, NoDuties: true,
		},
		Identify: n.identify,
	}
	change(&n.fleet.Operator)
	plane.MakeAccount(t, n.namespace, "operator")
	n.permit()
	for i := range websites {
		n.create(fmt.Sprintf("site-%d", i), "Hello")
	}
	t.Cleanup(n.end)
	for range 3 {
		n.start(nil)
	}
	n.until("all is well", n.wrong)
	return n
}

// identify gives a replica the operator's token, and a proxy of its own.
func (n *night) identify(ctx context.Context, _ string) (rig.Identity, error) {
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "operator"}}
	if err := n.client.SubResource("token").Create(ctx, account, request); err != nil {
		return rig.Identity{}, err
	}
	id, err := rig.Through(1, request.Status.Token, n.plane.Config())
	if err == nil {
		id.Proxy.Set(n.fault)
	}
	return id, err
}

// faults are those of all replicas' proxies from now on.
func (n *night) faults(f proxy.Faults) {
	n.fault = f
	for _, r := range n.fleet.All() {
		r.Proxy.Set(f)
	}
}

// permit gives the operator what it needs.
func (n *night) permit() {
	n.t.Helper()
	rules := append(permission.Rules(name), rbacv1.PolicyRule{
		APIGroups: []string{webv1.GroupVersion.Group}, Resources: []string{"websites", "websites/status"},
		Verbs: []string{"get", "list", "watch", "update", "patch"},
	})
	n.plane.Grant(n.t, n.namespace, "operator", controlplane.Account(n.namespace, "operator"), rules...)
}

func (n *night) create(site, title string) {
	n.t.Helper()
	obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: site}}
	obj.Spec.Title = title
	if err := n.client.Create(n.t.Context(), obj); err != nil {
		n.t.Fatal(err)
	}
}

// change gives a Website a title.
func (n *night) change(site, title string) {
	n.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"title":%q}}`, title))
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(n.kind("Website"))
	obj.SetNamespace(n.namespace)
	obj.SetName(site)
	if err := n.client.Patch(n.t.Context(), obj, patch); err != nil {
		n.t.Fatal(err)
	}
}

func (n *night) kind(kind string) schema.GroupVersionKind {
	return webv1.GroupVersion.WithKind(kind).GroupKind().WithVersion(n.version)
}

// start starts a replica in a new Pod: web-1, web-2 and so on.
func (n *night) start(change func(*rig.Operator)) {
	n.t.Helper()
	if _, err := n.fleet.Start(n.t.Context(), nil, change); err != nil {
		n.t.Fatal(err)
	}
}

func (n *night) pod(pod string) *rig.Replica {
	n.t.Helper()
	all := n.fleet.All()
	i := slices.IndexFunc(all, func(r *rig.Replica) bool { return r.Pod == pod })
	if i < 0 {
		n.t.Fatalf("there is no %s", pod)
	}
	return all[i]
}

// kill ends a replica, with its Pod. Its process may have ended by itself just before.
func (n *night) kill(pod string) {
	n.t.Helper()
	_ = n.pod(pod).Kill()
}

func (n *night) signal(s syscall.Signal, pods ...string) {
	n.t.Helper()
	for _, pod := range pods {
		if err := n.pod(pod).Process().Signal(s); err != nil {
			n.t.Error(err)
		}
	}
}

// end ends all replicas.
func (n *night) end() {
	n.fleet.Close()
	for _, r := range n.fleet.All() {
		if n.t.Failed() {
			n.t.Logf("the end of the log of %s:\n%s", r.Pod, r.Process().Tail())
		}
	}
}

// wrong says which Websites are not reconciled, and "" if all are.
func (n *night) wrong() string {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(n.kind("WebsiteList"))
	if err := n.client.List(n.t.Context(), &list, client.InNamespace(n.namespace)); err != nil {
		return err.Error()
	}
	var behind []string
	for _, site := range list.Items {
		observed, _, _ := unstructured.NestedInt64(site.Object, "status", "observedGeneration")
		if observed != site.GetGeneration() {
			behind = append(behind, site.GetName())
		}
	}
	if len(behind) > 0 {
		return "not reconciled: " + strings.Join(behind, ", ")
	}
	return ""
}

// until waits until wrong has nothing to say.
func (n *night) until(what string, wrong func() string) {
	n.t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Second) {
		said := wrong()
		if said == "" {
			return
		}
		if time.Since(begun) > patience {
			n.t.Fatalf("never happened: %s: %s", what, said)
		}
	}
}

// answer is what a command printed, with its exit status.
type answer struct {
	text string
	code int
}

// ask runs a command of rota, as an administrator. There are other rotas of that name in the cluster.
func (n *night) ask(line string) answer {
	if pod, ok := strings.CutPrefix(line, logOf); ok {
		return answer{string(n.pod(pod).Process().Tail()), 0}
	}
	args := append(strings.Fields(line), "-n", n.namespace, "--kubeconfig", n.plane.Kubeconfig())
	if args[0] == "check" { // there are no Pods that say so
		args = append(args, "--service-account", n.namespace+"/operator", "--in-namespaces", n.namespace)
	}
	if args[0] == "who" {
		args = append(args, "--rota", n.namespace+"/"+name)
	}
	out, err := exec.CommandContext(n.t.Context(), n.rota, args...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return answer{string(out), exit.ExitCode()}
	case err != nil:
		return answer{err.Error(), -1}
	}
	return answer{string(out), 0}
}

// question is a command, and what has to be in its answer.
type question struct {
	line string
	want string // a regular expression of one line
	code int    // anyCode: whatever it is
}

const anyCode = -2

// told is what a command said, and how soon.
type told struct {
	line, said string
	code       int
	after      time.Duration
}

func (t told) command() string {
	if strings.HasPrefix(t.line, logOf) {
		return "kubectl " + t.line
	}
	return "rota " + t.line
}

// hear asks again and again until all questions are answered.
func (n *night) hear(questions []question) []told {
	n.t.Helper()
	out, begun := make([]told, len(questions)), time.Now()
	last := make([]answer, len(questions))
	n.until("the tools say what is wrong", func() string {
		missing := ""
		for i, q := range questions {
			if out[i].line != "" {
				continue
			}
			a := n.ask(q.line)
			last[i] = a
			said := regexp.MustCompile("(?m)^.*(?:" + q.want + ").*$").FindString(a.text)
			if said == "" || q.code != anyCode && q.code != a.code {
				missing += fmt.Sprintf("\nrota %s (status %d, want %q and %d):\n%s", q.line, a.code, q.want, q.code, a.text)
				continue
			}
			out[i] = told{q.line, n.plain(said), a.code, time.Since(begun)}
		}
		return missing
	})
	return out
}

// logged is the error in a line of a replica's log.
var logged = regexp.MustCompile(`.*"error": "(.*)"}`)

// plain is what was said, for the table: the namespace is as in the docs.
func (n *night) plain(said string) string {
	said = strings.TrimSpace(logged.ReplaceAllString(said, "$1"))
	return strings.ReplaceAll(strings.ReplaceAll(said, n.namespace, "operators"), "|", "\\|")
}

// delete deletes objects, as kubectl delete does.
func (n *night) delete(objects ...client.Object) {
	n.t.Helper()
	for _, obj := range objects {
		if err := n.client.Delete(n.t.Context(), obj); err != nil {
			n.t.Fatal(err)
		}
	}
}
