package incidents_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig"
)

var lease = flag.Duration("lease", 5*time.Second, "LeaseDuration of the operator; the default of members is 15s")

// The questions of somebody on call.
const (
	check   = "check " + name
	status  = "status " + name
	history = "status -o wide " + name
)

// logOf is kubectl logs of a replica.
const logOf = "logs "

func who(site string) string { return "who website/" + site }

// An incident goes wrong, is noticed, and is repaired.
type incident struct {
	name      string
	happens   func(*night)
	questions []question
	// repaired undoes it, where somebody has to. Then all has to be well.
	repaired func(*night)
}

func incidents() []incident {
	return []incident{{
		name:      "a replica is killed",
		happens:   func(n *night) { n.kill("web-1") },
		questions: []question{{check, "Expelled|MemberSilent|web-1", anyCode}, {history, "xpelled.*web-1|web-1.*xpelled", 0}},
		repaired:  func(n *night) { n.start(nil) },
	}, {
		name:      "a replica stands still",
		happens:   func(n *night) { n.signal(syscall.SIGSTOP, "web-1") },
		questions: []question{{check, "Expelled|MemberSilent|web-1", anyCode}, {history, "xpelled.*web-1|web-1.*xpelled", 0}},
		repaired:  func(n *night) { n.signal(syscall.SIGCONT, "web-1") },
	}, {
		name:      "all replicas stand still",
		happens:   func(n *night) { n.signal(syscall.SIGSTOP, n.fleet.Pods()...) },
		questions: []question{{check, "× .*no member takes its slots", 1}, {status, "MemberSilent.*no member takes", 0}},
		repaired:  func(n *night) { n.signal(syscall.SIGCONT, n.fleet.Pods()...) },
	}, {
		name: "the Role is taken away",
		happens: func(n *night) {
			role := metav1.ObjectMeta{Namespace: n.namespace, Name: "operator"}
			n.delete(&rbacv1.Role{ObjectMeta: role}, &rbacv1.RoleBinding{ObjectMeta: role})
		},
		questions: []question{{check, "× .*may not .*leases", 1}, {status, "MemberSilent.*permissions", 0}},
		repaired:  func(n *night) { n.permit() },
	}, {
		name:      "the table is edited by hand",
		happens:   func(n *night) { n.edit(func(cm *corev1.ConfigMap) { cm.Data["slots"] = "sixty-four" }) },
		questions: []question{{check, "the table is invalid", 1}, {status, "the table is invalid", anyCode}},
	}, {
		name:      "the table is deleted",
		happens:   func(n *night) { n.delete(n.table()) },
		questions: []question{{check, "TableLost|was deleted", anyCode}},
	}, {
		name: "the Leases are deleted",
		happens: func(n *night) {
			err := n.client.DeleteAllOf(n.t.Context(), &coordinationv1.Lease{}, client.InNamespace(n.namespace),
				client.MatchingLabels{names.LabelRota: name})
			if err != nil {
				n.t.Fatal(err)
			}
		},
		questions: []question{{check, "over: Expelled|does not renew|no Lease", anyCode}, {history, "its Lease was deleted", 0}},
	}, {
		name:      "a replica has another number of slots",
		happens:   func(n *night) { n.start(func(o *rig.Operator) { o.Slots = 128 }) },
		questions: []question{{logOf + "web-4", "64 slots.*was started with 128", 0}},
		repaired:  func(n *night) { n.kill("web-4") },
	}, {
		name:    "an object hangs",
		happens: func(n *night) { n.change("site-1", rig.TitleHangs) },
		questions: []question{
			{who("site-1"), "has been running for", 0}, {"status " + name + " -o wide", "site-1.*has been running for", anyCode},
			{check, "KeyHangs.*site-1|site-1.*has been running for", anyCode},
		},
	}, {
		name:    "an object fails for ever",
		happens: func(n *night) { n.change("site-1", rig.TitleFails) },
		questions: []question{
			{who("site-1"), "has failed.*bucket", 0}, {"status " + name + " -o wide", "site-1.*has failed.*bucket", anyCode},
			{check, "site-1 has failed.*bucket", anyCode},
		},
		repaired: func(n *night) { n.change("site-1", "Hello again") },
	}, {
		name:      "an object panics",
		happens:   func(n *night) { n.change("site-1", rig.TitlePanics) },
		questions: []question{{who("site-1"), "has failed.*panic", 0}, {check, "site-1 has failed.*panic", anyCode}},
		repaired:  func(n *night) { n.change("site-1", "Hello again") },
	}, {
		name:      "an object ends the process",
		happens:   func(n *night) { n.change("site-1", rig.TitleKills) },
		questions: []question{{check, "was expelled .* times.*an object may be the cause", anyCode}},
		repaired:  func(n *night) { n.change("site-1", "Hello again") },
	}, {
		name:      "the namespace is deleted",
		happens:   func(n *night) { n.delete(rig.Namespace(n.namespace)) },
		questions: []question{{check, "there is no namespace.*It was deleted", 4}},
	}}
}

// wholeCluster are those that go wrong for a whole cluster: each has one of its own.
func wholeCluster() []incident {
	return []incident{{
		name: "the CustomResourceDefinition is deleted",
		happens: func(n *night) {
			n.delete(&metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
				ObjectMeta: metav1.ObjectMeta{Name: "websites." + webv1.GroupVersion.Group},
			})
		},
		questions: []question{{check, "does not serve Website", 1}, {"verify " + name, "does not serve Website", 1}},
	}, {
		name: "the API server stands still",
		happens: func(n *night) {
			pid := n.plane.PID("apiserver-0")
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				n.t.Fatal(err)
			}
		},
		questions: []question{{check, "API server", 3}, {status, "the API server does not answer", 3}},
		repaired: func(n *night) {
			if err := syscall.Kill(n.plane.PID("apiserver-0"), syscall.SIGCONT); err != nil {
				n.t.Fatal(err)
			}
		},
	}}
}

// results are the rows of the table.
type results struct {
	mu   sync.Mutex
	rows map[string][]told
}

// The test binary is also the replicas'.
func TestMain(m *testing.M) {
	if os.Getenv(rig.EnvOperator) != "" {
		os.Exit(rig.OperatorMain())
	}
	controlplane.Parallel(4)
	controlplane.Main(m, controlplane.Options{ControllerManager: true})
}

func TestIncidents(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("takes minutes: run `make check WHAT=incidents`")
	}
	r := &results{rows: map[string][]told{}}
	all := slices.Concat(incidents(), wholeCluster())
	t.Run("all", func(t *testing.T) {
		for _, i := range incidents() {
			t.Run(strings.ReplaceAll(i.name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				r.run(t, controlplane.For(t), i)
			})
		}
		for _, i := range wholeCluster() {
			t.Run(strings.ReplaceAll(i.name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				r.run(t, controlplane.New(t, controlplane.Options{ControllerManager: true}), i)
			})
		}
	})
	t.Log(r.table(all))
}

func (r *results) run(t *testing.T, plane *controlplane.ControlPlane, i incident) {
	n := newNight(t, plane, func(*rig.Operator) {})
	i.happens(n)
	said := n.hear(i.questions)
	r.mu.Lock()
	r.rows[i.name] = said
	r.mu.Unlock()
	if i.repaired == nil {
		return
	}
	i.repaired(n)
	n.until("all is well again", n.wrong)
	n.until("the tools say that all is well again", n.ill)
}

// ill is what is wrong by the tools.
func (n *night) ill() string {
	if a := n.ask(check); a.code != 0 {
		return a.text
	}
	return ""
}

// table is for docs/verification.md.
func (r *results) table(all []incident) string {
	var b strings.Builder
	b.WriteString("\n| Incident | Command | Status | After | It says |\n| --- | --- | --- | --- | --- |\n")
	for _, i := range all {
		for _, t := range r.rows[i.name] {
			fmt.Fprintf(&b, "| %s | `%s` | %d | %.0f s | %s |\n", i.name, t.command(), t.code, t.after.Seconds(), t.said)
		}
	}
	return b.String()
}

// table reads the rota's ConfigMap.
func (n *night) table() *corev1.ConfigMap {
	n.t.Helper()
	var cm corev1.ConfigMap
	if err := n.client.Get(n.t.Context(), client.ObjectKey{Namespace: n.namespace, Name: name}, &cm); err != nil {
		n.t.Fatal(err)
	}
	return &cm
}

// edit changes the table as kubectl edit does.
func (n *night) edit(change func(*corev1.ConfigMap)) {
	n.t.Helper()
	cm := n.table()
	change(cm)
	if err := n.client.Update(n.t.Context(), cm); err != nil {
		n.t.Fatal(err)
	}
}
