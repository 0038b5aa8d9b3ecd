package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/store/memory"
)

// A permission that goes missing while a member works is told once, not at each try, and again when it goes missing
// anew.
func TestMissingPermissionsAreToldOnce(t *testing.T) {
	r := testRota(t)
	shared := memory.New()
	r.store = shared.Client(nil)
	lines := 0
	r.log = funcr.New(func(string, string) { lines++ }, funcr.Options{})
	refusal := func(verb string) error {
		return &permission.Error{User: "jane", Namespace: "operators", Resource: "leases", Group: "coordination.k8s.io",
			Verb: verb, Err: errors.New("no")}
	}
	for range 5 {
		r.report("Cannot renew the Lease", refusal("update"))
	}
	r.report("Cannot watch", refusal("watch"))
	r.report("Cannot watch", errors.New("connection refused"))
	notes := shared.Notes()
	if len(notes) != 2 || lines != 3 {
		t.Fatalf("%d events, %d log lines for two refusals, one of them 5 times, and another error", len(notes), lines)
	}
	if n := notes[0]; n.Reason != "PermissionMissing" || !n.Warning || !strings.Contains(n.Message, `verbs: ["update"]`) {
		t.Errorf("told %+v", n)
	}
	now, denied := r.now(), &permission.Error{Resource: "leases", Verb: "update", Namespace: "operators",
		Group: "coordination.k8s.io"}
	if r.refusals.fresh(denied, now+refusalQuiet/2) || !r.refusals.fresh(denied, now+3*refusalQuiet) {
		t.Error("a refusal counts as new for another time than after a while without")
	}
	times := 0
	for at := now + 10*refusalQuiet; at < now+10*refusalQuiet+2*refusalAgain; at += refusalQuiet / 4 {
		if r.refusals.fresh(denied, at) {
			times++
		}
	}
	if times != 2 {
		t.Errorf("a refusal that goes on for %v is told %d times, want 2", 2*refusalAgain, times)
	}
}
