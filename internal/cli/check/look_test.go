package check

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

var start = time.Unix(1_763_712_345, 0)

// quiet is a rota in which all is well: a has slots 0-127, b the rest.
func quiet() *view.Rota {
	v := &view.Rota{Namespace: "ns", Name: "web", At: start, Slots: 256, Reports: map[string]*coverage.Report{}, Table: &table.Table{}}
	for i, id := range []string{"a", "b"} {
		open := slot.Range{First: slot.Slot(128 * i), Last: slot.Slot(128*i + 127)}
		v.Members = append(v.Members, view.Member{ID: id, Owned: 128, State: view.Working, ClockAhead: ptr.To(0.3)})
		v.Runs = append(v.Runs, view.Run{First: int(open.First), Last: int(open.Last), Owner: id, Since: 41})
		v.Reports[id] = &coverage.Report{Member: id, Open: slot.SetOf(open), Setup: map[string]string{
			coverage.SettingLease: "15s", coverage.SettingFence: "2.5s",
		}}
	}
	return v
}

// shut has a report that it works on none of its slots.
func shut(v *view.Rota) {
	v.Reports["a"].Open, v.Runs[0].Closed = slot.Set{}, true
}

// told has the lines of a group as text.
func told(r *run, group string) string {
	var b strings.Builder
	for _, l := range r.lines[group] {
		fmt.Fprintf(&b, "%s %s [%s] [%s] %s | %s\n", l.Level, l.Code, l.Member, l.Slots, l.Text, l.Cure)
	}
	return b.String()
}

// That owners work on their slots is told only if each of them says so. What is closed, or moves, at each look is
// something to warn of before it is a problem.
func TestSlots(t *testing.T) {
	const good = "ok SlotClosed [] [] owners report that they work on their slots"
	for name, c := range map[string]struct {
		change     func(*view.Rota)
		looked     time.Duration
		want, none string
	}{
		"good": {func(*view.Rota) {}, 0, good, "warning"},
		"one does not report": {
			func(v *view.Rota) { delete(v.Reports, "a") }, 0, "warning ReportMissing [] [] 1 of 2 owners do not report", good,
		},
		"reports not read": {func(v *view.Rota) {
			v.Reports, v.Unknown = nil, []view.Unknown{{What: "reports"}}
		}, 0, "ok SlotUnowned", "SlotClosed"},
		"closed": {shut, 20 * time.Second,
			"warning SlotClosed [a] [0-127] the owner reports that it does not work on them, for 20s so far | it may start soon. " +
				"It is a problem after 18s: rota check -n ns web --wait 22s", good},
		"closed by a report that is about them": {func(v *view.Rota) {
			shut(v)
			v.Reports["a"].Handovers = []coverage.Handover{{Epoch: 41}}
		}, 0, "failed SlotClosed [a] [0-127] the owner reports that it does not work on them", good},
		"closed by a report from before their handover": {func(v *view.Rota) {
			shut(v)
			v.Reports["a"].Handovers = []coverage.Handover{{Epoch: 40}}
		}, 0, "warning SlotClosed [a] [0-127]", good},
		"closed at one look": {shut, 0, "warning SlotClosed [a] [0-127] the owner reports", good},
		"closed since it waits for an election": {
			func(v *view.Rota) { shut(v); v.Reports["a"].Waits = "another one leads" }, 20 * time.Second, "ok SlotUnowned", "SlotClosed",
		},
		"closed since they move": {
			func(v *view.Rota) { shut(v); v.Runs[0].Next = "b" }, 20 * time.Second, "ok SlotUnowned", "SlotClosed",
		},
		"moving at each look": {
			func(v *view.Rota) {
				v.Moves = []view.Move{
					{First: 0, Last: 7, From: "a", To: "b", Phase: "drain", Seconds: ptr.To(20.0)},
					{First: 9, Last: 9, From: "a", To: "b", Phase: "drain", Seconds: ptr.To(20.0)},
				}
			}, 20 * time.Second,
			"warning MoveStuck [a] [0-7 9] they have been moving to b for 20s so far, in phase drain: as long as this check has run | " +
				"it may end soon. Check for longer: rota check -n ns web --wait 1m4s", "failed",
		},
		"a duty": {
			func(v *view.Rota) {
				v.Moves = []view.Move{{First: 256, Last: 256, Duty: "backup", From: "a", To: "b", Phase: "warm", Seconds: ptr.To(20.0)}}
			}, 20 * time.Second, "warning MoveStuck [b] [] duty backup has been moving to b", "failed",
		},
		"another move at each look": {
			func(v *view.Rota) {
				v.Moves = []view.Move{{First: 0, Last: 7, From: "a", To: "b", Phase: "drain", Seconds: ptr.To(18.0)}}
			}, 20 * time.Second, "1 runs of slots, or duties, are moving", "MoveStuck",
		},
		"one look": {
			func(v *view.Rota) { v.Moves = []view.Move{{First: 0, Last: 7, From: "a", To: "b", Phase: "warm"}} }, 0, good, "MoveStuck",
		},
		"a problem already": {
			func(v *view.Rota) {
				v.Moves = []view.Move{{First: 0, Last: 7, From: "a", To: "b", Phase: "warm", Seconds: ptr.To(90.0)}}
			}, 90 * time.Second, good, "MoveStuck",
		},
	} {
		r := &run{lines: map[string][]Line{}}
		for _, after := range slices.Compact([]time.Duration{0, c.looked}) {
			v := quiet()
			v.At = start.Add(after)
			c.change(v)
			if r.remember(v); after == c.looked {
				r.slots(v)
			}
		}
		if got := told(r, groupSlots); !strings.Contains(got, c.want) || strings.Contains(got, c.none) {
			t.Errorf("%s: got\n%swant %q and not %q", name, got, c.want, c.none)
		}
	}
}

// Looking ends once nothing can change, and lasts until closed slots are a problem, if it may.
func TestHowLongToLook(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*view.Rota)
		longer  bool
		settled bool
		wait    time.Duration
	}{
		"quiet":                {func(*view.Rota) {}, true, true, 10 * time.Second},
		"closed":               {shut, true, false, 19500 * time.Millisecond},
		"closed, as it is set": {shut, false, false, 10 * time.Second},
		"closed for long": {
			func(v *view.Rota) { shut(v); v.Problems = []view.Problem{{What: view.SlotClosed}} }, false, true, 10 * time.Second,
		},
		"waits for an election": {func(v *view.Rota) {
			shut(v)
			v.Reports["a"].Waits = "another one leads"
			v.Moves = []view.Move{{To: "a", Phase: "activate"}}
		}, true, true, 10 * time.Second},
		"moves": {func(v *view.Rota) { v.Moves = []view.Move{{To: "a", Phase: "activate"}} }, true, false, 10 * time.Second},
	} {
		r := &run{Options: Options{Wait: 10 * time.Second, Longer: c.longer}}
		v := quiet()
		c.change(v)
		r.remember(v)
		if settled, wait := r.settled(v), r.wait(v); settled != c.settled || wait != c.wait {
			t.Errorf("%s: settled %v, looks for %v; want %v, %v", name, settled, wait, c.settled, c.wait)
		}
	}
}

// Clocks are good if each was compared.
func TestClocksOfMembers(t *testing.T) {
	const good = "their clocks agree with the API server"
	for name, c := range map[string]struct {
		change func(*view.Rota)
		good   bool
	}{
		"compared":       {func(*view.Rota) {}, true},
		"one not known":  {func(v *view.Rota) { v.Members[1].ClockAhead = nil }, false},
		"none":           {func(v *view.Rota) { v.Members[0].ClockAhead, v.Members[1].ClockAhead = nil, nil }, false},
		"10 minutes off": {func(v *view.Rota) { v.Members[0].ClockAhead = ptr.To(600.0) }, false},
	} {
		r := &run{lines: map[string][]Line{}}
		v := quiet()
		c.change(v)
		if r.members(v); strings.Contains(told(r, groupMembers), good) != c.good {
			t.Errorf("%s: want good %v:\n%s", name, c.good, told(r, groupMembers))
		}
	}
}

// Without events nobody knows of findings.
func TestCoverageWithoutEvents(t *testing.T) {
	for _, unknown := range [][]view.Unknown{nil, {{What: "warnings"}}} {
		r := &run{lines: map[string][]Line{}}
		v := quiet()
		v.Unknown = unknown
		r.coverage(v)
		got := told(r, groupCoverage)
		if !strings.Contains(got, "2 of 2 members report") || strings.Contains(got, "no finding in the last hour") != (unknown == nil) {
			t.Errorf("unknown %v: %s", unknown, got)
		}
	}
}

// What a member needs includes the Lease of a leader election, and is not more than what was asked.
func TestPermissionsThatAreAsked(t *testing.T) {
	var asked, deny []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		a := review.Spec.ResourceAttributes
		asked = append(asked, a.Verb+" "+a.Resource+" "+a.Namespace+"/"+a.Name)
		review.Status.Allowed = !slices.Contains(deny, a.Verb+" "+a.Resource+" "+a.Namespace+"/"+a.Name)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	plain := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	web, elsewhere := types.NamespacedName{Namespace: "ns", Name: "web"}, types.NamespacedName{Namespace: "other", Name: "leader"}
	for name, c := range map[string]struct {
		rota  types.NamespacedName
		setup string // by a report
		want  string
		lease bool
	}{
		"no kind":           {web, "", "ok PermissionMissing [] [] this user has the 12 permissions that a member needs for the rota's own objects; no kind", false},
		"nothing":           {types.NamespacedName{}, "", "warning AccessUnknown [] [] this user: no kind is known", false},
		"election":          {web, elsewhere.String(), "this user has the 17 permissions", true},
		"election, same ns": {web, "ns/leader", "this user has the 12 permissions", false},
	} {
		asked = nil
		r := &run{Options: Options{Rota: c.rota, Self: true}, cfg: plain, lines: map[string][]Line{}}
		v := quiet()
		v.Reports["a"].Setup[coverage.SettingElection] = c.setup
		r.learn(v)
		r.permissions(t.Context())
		got := told(r, groupPermissions)
		if !strings.Contains(got, c.want) || slices.Contains(asked, "update leases other/leader") != c.lease {
			t.Errorf("%s: want %q, got\n%sasked: %q", name, c.want, got, asked)
		}
	}
	for _, c := range []struct {
		deny []string
		want string
	}{
		{[]string{"list leases other/leader", "watch leases other/leader"}, "warning PermissionMissing"},
		{[]string{"watch leases other/leader", "update leases other/leader"}, "failed PermissionMissing"},
	} {
		deny = c.deny
		r := &run{Options: Options{Rota: web, Self: true}, cfg: plain, lines: map[string][]Line{}}
		v := quiet()
		v.Reports["a"].Setup[coverage.SettingElection] = elsewhere.String()
		r.learn(v)
		r.permissions(t.Context())
		if got := told(r, groupPermissions); !strings.Contains(got, c.want) || strings.Contains(got, "ok Perm") {
			t.Errorf("%v denied: want %q, got\n%s", deny, c.want, got)
		}
	}
	// Reconciles read other members' objects live. What hands its keys out to workers does not reconcile.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	for dispatched, want := range map[string]bool{"": true, "Secret": false} {
		deny, asked = []string{"get secrets /"}, nil
		r := &run{Options: Options{Rota: web, Self: true, Kinds: []schema.GroupKind{{Kind: "Secret"}}}, cfg: plain,
			mapper: mapper, lines: map[string][]Line{}}
		v := quiet()
		for _, report := range v.Reports {
			report.Digests = nil
			report.Setup[coverage.SettingDispatched] = dispatched
		}
		r.learn(v)
		r.permissions(t.Context())
		got := told(r, groupPermissions)
		if strings.Contains(got, "warning PermissionMissing [] [] this user may not get secrets in the cluster") != want ||
			slices.Contains(asked, "get secrets /") != want || !slices.Contains(asked, "list secrets /") {
			t.Errorf("dispatched %q: %s\nasked: %q", dispatched, got, asked)
		}
	}
	r := &run{Options: Options{Kinds: []schema.GroupKind{{Kind: "ConfigMap"}}}}
	if r.learn(quiet()); len(r.Elections) != 0 {
		t.Errorf("elections of a rota without: %v", r.Elections)
	}
}

// Whoever may not read Pods is refused once, and not for each of a thousand members; members that are no Pods are not
// all looked for.
func TestAccountOfManyMembers(t *testing.T) {
	for code, most := range map[int]int{http.StatusForbidden: 1, http.StatusNotFound: accountTries} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			reason := strings.ReplaceAll(http.StatusText(code), " ", "")
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
		require.NoError(t, err)
		r := &run{client: client, lines: map[string][]Line{}}
		r.accountOf(t.Context(), make1000())
		server.Close()
		if requests != most || r.Account.Name != "" {
			t.Errorf("%d: %d requests, want %d; account %v", code, requests, most, r.Account)
		}
	}
}

func make1000() (pods []string) {
	for i := range 1000 {
		pods = append(pods, fmt.Sprint("web-", i))
	}
	return pods
}
