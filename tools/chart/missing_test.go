package chart

import (
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/permission"
)

// TestMissing takes each permission that Rota needs from the chart's roles, one at a time. A member without it ends at
// its start, and names the permission. (For one it does not end: see below.)
func TestMissing(t *testing.T) {
	newWorld(t) // before the parallel ones
	everything := append([]schema.GroupVersionResource{websites}, owned...)
	needs := permission.Needs("", labeller.Rules(everything...))
	needs = append(needs, permission.Needs("its own", permission.Rules("website"))...)
	for _, need := range needs {
		t.Run(strings.Join([]string{need.Verb, need.Resource, need.Name}, "-"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if need.Namespace != "" {
				need.Namespace = w.namespace
			}
			taken := 0
			w.install(set(nil, "rota.delivery", "SlotLabel"), func(objects []*unstructured.Unstructured) {
				taken = without(objects, need)
			})
			if taken == 0 {
				t.Fatal("the chart does not grant it")
			}
			r := w.start()
			if need.Verb == "list" && need.Resource == "websites" {
				// The manager waits for the caches of kinds with an index before it starts anything else, Rota's part included.
				w.eventually(2*time.Minute, func() string {
					if !strings.Contains(r.log.String(), `cannot list resource \"websites\"`) {
						return "the log does not tell"
					}
					return ""
				})
				return
			}
			ended := make(chan error, 1)
			go func() { ended <- r.cmd.Wait() }()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the member ended as if nothing were wrong")
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("the member goes on")
			}
			// What it prints is a manifest in a line of JSON.
			text := strings.ReplaceAll(r.log.String(), `\n`, "\n")
			lacks := 0 // with a name, the rule for all names has to be taken, too
			for _, n := range needs {
				same := n.Group == need.Group && n.Resource == need.Resource && n.Verb == need.Verb
				if same && (n.Name == need.Name || n.Name == "") {
					lacks++
				}
			}
			want := []string{
				fmt.Sprintf("lacks %d permissions", lacks), w.account(), "  resources:\n  - " + need.Resource + "\n",
				"  verbs:\n  - " + need.Verb,
			}
			if need.Name != "" {
				want = append(want, "  resourceNames:\n  - "+need.Name+"\n")
			}
			for _, want := range want {
				if !strings.Contains(text, want) {
					t.Errorf("the member does not print %q", want)
				}
			}
		})
	}
}

// TestMissingOfTheOperator takes away what the operator itself needs to see its kinds. The member says which kind keeps
// it from joining. (Websites have an index: see TestMissing.)
func TestMissingOfTheOperator(t *testing.T) {
	newWorld(t) // before the parallel ones
	for kind, resource := range map[string]schema.GroupResource{
		"Deployment": {Group: "apps", Resource: "deployments"}, "Service": {Resource: "services"},
		"ConfigMap": {Resource: "configmaps"}, "Secret": {Resource: "secrets"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.install(nil, func(objects []*unstructured.Unstructured) {
				for _, verb := range []string{"list", "watch"} { // a stock informer gets along with either
					need := permission.Error{Group: resource.Group, Resource: resource.Resource, Verb: verb}
					if without(only(objects, "ClusterRole"), need) == 0 {
						t.Error("the chart does not grant it")
					}
				}
			})
			w.start()
			w.eventually(2*time.Minute, func() string {
				list, err := w.typed.EventsV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					return err.Error()
				}
				var notes []string
				for _, e := range list.Items {
					if tells(e, kind) {
						return ""
					}
					notes = append(notes, e.Reason+": "+e.Note)
				}
				return fmt.Sprintf("no event NotJoining names %s: %q", kind, notes)
			})
		})
	}
}

func tells(e eventsv1.Event, kind string) bool {
	return e.Reason == "NotJoining" && strings.Contains(e.Note, kind)
}
