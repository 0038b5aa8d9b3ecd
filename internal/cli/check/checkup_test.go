package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/require"
)

// The header Date of an answer tells how far this machine's clock is from the server's, whichever way.
func TestClockOfThisMachine(t *testing.T) {
	for _, c := range []struct {
		ahead time.Duration // of the server's
		level Level
		text  string
	}{
		{0, OK, "this machine's clock agrees with the API server"},
		{3 * time.Second, OK, "agrees with the API server"},
		{10 * time.Minute, Warning, "ahead of the API server's"},
		{-10 * time.Minute, Warning, "behind the API server's"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(-c.ahead).UTC().Format(http.TimeFormat))
		}))
		d := &dates{}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		answer, err := d.wrap(http.DefaultTransport).RoundTrip(req)
		require.NoError(t, err)
		_ = answer.Body.Close()
		server.Close()
		r := &run{lines: map[string][]Line{}}
		at, ahead, ok := d.last()
		r.clock(at, ahead)
		got := r.lines[groupCluster][0]
		if !ok || (ahead-c.ahead).Abs() > 10*time.Second || got.Level != c.level || !strings.Contains(got.Text, c.text) ||
			(got.Level == Warning) != strings.Contains(got.Cure, "synchronize this machine's clock") {
			t.Errorf("%v ahead: found %v, %+v", c.ahead, ahead, got)
		}
	}
}

func TestPrunedBy(t *testing.T) {
	const argo, flux, helm = "argocd.argoproj.io/tracking-id", "kustomize.toolkit.fluxcd.io/name", "meta.helm.sh/release-name"
	for want, marks := range map[string][]map[string]string{
		"":        {nil, {"team": "blue"}, {argo: "x", "argocd.argoproj.io/sync-options": "Prune=false,Delete=false"}, {flux: "x", "kustomize.toolkit.fluxcd.io/prune": "disabled"}},
		"Argo CD": {{argo: "x"}, {"argocd.argoproj.io/instance": "x"}},
		"Flux":    {{flux: "x"}, {"helm.toolkit.fluxcd.io/name": "x"}},
		"Helm":    {{helm: "x"}},
	} {
		for _, m := range marks {
			if got := prunedBy(&metav1.ObjectMeta{Annotations: m}); got != want {
				t.Errorf("annotations %v: pruned by %q, want %q", m, got, want)
			}
			if got := prunedBy(&metav1.ObjectMeta{Labels: m}); got != want {
				t.Errorf("labels %v: pruned by %q, want %q", m, got, want)
			}
		}
	}
	if got := prunedBy(&metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{}}}); got != "the garbage collector" {
		t.Errorf("with an owner: %q", got)
	}
}

// What is missing of one thing is one rule, and stands as in a Role.
func TestMissingRules(t *testing.T) {
	got := merged([]*permission.Error{
		{Namespace: "ops", Resource: "configmaps", Name: "web", Verb: "get"},
		{Namespace: "ops", Resource: "configmaps", Verb: "create"},
		{Namespace: "ops", Resource: "configmaps", Name: "web", Verb: "update"},
		{Group: "apps", Resource: "deployments", Verb: "list"},
		{Namespace: "ops", Group: "apps", Resource: "deployments", Verb: "list"},
		{Group: "apps", Resource: "deployments", Verb: "patch"},
	})
	var text []string
	for _, m := range got {
		text = append(text, m.namespace+"\n"+ruleText(m.rule))
	}
	want := []string{
		"ops\n- apiGroups: [\"\"]\n  resources: [\"configmaps\"]\n  resourceNames: [\"web\"]\n  verbs: [\"get\", \"update\"]",
		"ops\n- apiGroups: [\"\"]\n  resources: [\"configmaps\"]\n  verbs: [\"create\"]",
		"\n- apiGroups: [\"apps\"]\n  resources: [\"deployments\"]\n  verbs: [\"list\", \"patch\"]",
		"ops\n- apiGroups: [\"apps\"]\n  resources: [\"deployments\"]\n  verbs: [\"list\"]",
	}
	require.Equal(t, "what it says", want, text)
}

// What may still be so comes first of all, newest first, with the rule to add in lines of its own. What is over is
// counted. What the check itself has found to be permitted is over.
func TestEvents(t *testing.T) {
	v := quiet()
	at := func(s int) time.Time { return v.At.Add(time.Duration(s-100) * time.Second) }
	const denied = "Cannot label: jane may not patch x; add this to the rules of its Role there:\n- apiGroups: [\"\"]"
	v.Warnings = []view.Warning{
		{At: at(1), Member: "pod-a", ID: "a", Reason: "Lapsed", Message: "no renewal", Over: "it has renewed its Lease since"},
		{At: at(2), Member: "pod-a", ID: "a", Reason: "DutyFails", Message: "duty x: all"},
		{At: at(3), Member: "pod-c", Reason: "PermissionMissing", Message: denied},
		{At: at(4), Member: "pod-b", ID: "b", Reason: view.SlotHeldBack, Message: "a problem by itself"},
	}
	for _, c := range []struct {
		asked bool // which permissions there are
		want  string
	}{
		{false, "warning PermissionMissing [pod-c] [] PermissionMissing, 1m37s ago: Cannot label: jane may not patch x; add this " +
			"to the rules of its Role there: | - apiGroups: [\"\"]\n" +
			"warning DutyFails [a] [] DutyFails, 1m38s ago: duty x: all | \n" +
			"ok EarlierWarnings [] [] earlier, and over: Lapsed (1); rota status -o wide -n ns web lists them | \n"},
		{true, "warning DutyFails [a] [] DutyFails, 1m38s ago: duty x: all | \n" +
			"ok EarlierWarnings [] [] earlier, and over: Lapsed (1), PermissionMissing (1); rota status -o wide -n ns web lists them | \n"},
	} {
		r := &run{lines: map[string][]Line{}}
		if c.asked {
			r.good(groupPermissions, codePermission, "all of them")
		}
		r.events(v)
		require.Equal(t, "what events say", c.want, told(r, groupEvents))
	}
}

// Every problem of package view is told in a group, and one that nobody here knows, too.
func TestProblemsHaveGroups(t *testing.T) {
	for _, what := range append(view.Whats(), "Unheard") {
		r := &run{lines: map[string][]Line{}}
		r.problem(view.Problem{Severity: view.Error, What: what, Message: "m"})
		if result := r.result(); result.Failed != 1 || result.Groups[0].Lines[0].Link != Page+"#"+strings.ToLower(what) {
			t.Errorf("problem %s: %+v", what, result)
		}
	}
}

// A table that a newer release wrote is not broken: nobody is told to delete it.
func TestUnreadableTables(t *testing.T) {
	_, newer := table.Decode(map[string]string{"format": "99"})
	for _, c := range []struct {
		err        error
		code, cure string
		deletes    bool
	}{
		{fmt.Errorf("%w: %w", view.ErrNewer, newer), codeNewer, "do not delete the table", false},
		{fmt.Errorf("%w: %w", view.ErrTable, errors.New("field epoch")), codeInvalid, "kubectl delete configmap -n ns web", true},
		{fmt.Errorf("%w: %w", view.ErrNoRota, view.ErrTableLost), codeLost, "after a lease", false},
	} {
		r := &run{Options: Options{Rota: types.NamespacedName{Namespace: "ns", Name: "web"}}, lines: map[string][]Line{}}
		if !r.unreadable(c.err) {
			t.Fatalf("%v: not told", c.err)
		}
		got := r.lines[groupTable][0]
		if got.Level != Failed || got.Code != c.code || !strings.Contains(got.Cure, c.cure) ||
			strings.Contains(got.Cure, "kubectl delete") != c.deletes {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
	if r := (&run{lines: map[string][]Line{}}); r.unreadable(errors.New("timeout")) || r.unreadable(nil) {
		t.Errorf("told: %+v", r.lines)
	}
}
