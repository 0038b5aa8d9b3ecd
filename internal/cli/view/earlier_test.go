package view

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// A warning is over once what it says is healed, and not before.
func TestOver(t *testing.T) {
	const (
		leasesRule = "Cannot renew: a may not update leases.coordination.k8s.io in namespace ns; add this to the rules of its " +
			"Role there:\n- apiGroups: [\"coordination.k8s.io\"]\n  resources: [\"leases\"]\n  verbs: [\"update\"]"
		sitesRule = "Cannot label: a may not patch websites in the cluster; add this to the rules of its ClusterRole:\n" +
			"- apiGroups: [\"web.example.com\"]\n  resources: [\"websites\"]\n  verbs: [\"patch\"]"
	)
	ago := func(d time.Duration, member, reason, message string) Warning {
		return Warning{At: now.Add(-d), Member: member, Reason: reason, Message: message}
	}
	shut := func(in *input) {
		l := in.leases["a"]
		l.Annotations = map[string]string{names.AnnotationGate: names.GateShut}
		in.leases["a"] = l
	}
	silent := func(in *input) {
		l := in.leases["a"]
		renew(&l, now.Add(-2*time.Minute))
		in.leases = map[string]coordinationv1.Lease{"a": l, "b": in.leases["b"]}
	}
	for name, c := range map[string]struct {
		warning Warning
		change  func(*input)
		over    bool
	}{
		"lapsed and renewed":          {warning: ago(time.Minute, "pod-a", "Lapsed", ""), over: true},
		"lapsed":                      {warning: ago(time.Minute, "pod-a", "Lapsed", ""), change: shut},
		"lapsed, and not renewed":     {warning: ago(time.Minute, "pod-a", "Lapsed", ""), change: silent},
		"lapsed, in a former process": {warning: ago(2*time.Hour, "pod-a", "Lapsed", ""), over: true},
		"expelled":                    {warning: ago(time.Minute, "pod-a", "Expelled", "member c-x did not renew its Lease"), over: true},
		"expelled, and nobody has its slots": {
			warning: ago(time.Minute, "pod-a", "Expelled", "member c-x did not renew its Lease"),
			change:  func(in *input) { in.table.Runs[0].Owner, in.table.Runs[0].Epoch = "", 0 },
		},
		"table lost": {warning: ago(time.Minute, "pod-a", "TableLost", ""), over: true},
		"table lost, and restored from a copy": {
			warning: ago(time.Minute, "pod-a", "TableLost", ""), change: func(in *input) { in.uid = "other" },
		},
		"duties suspended": {
			warning: ago(time.Minute, "pod-a", "DutiesSuspended", ""), change: func(in *input) { in.table.Older = 1 },
		},
		"duties no longer suspended": {warning: ago(time.Minute, "pod-a", "DutiesSuspended", ""), over: true},
		"reconciles fail":            {warning: ago(time.Minute, "pod-a", "ReconcilesFail", "controller website: all 3 reconciles")},
		"reconciles succeed again": {
			warning: ago(time.Minute, "pod-a", "ReconcilesFail", "controller website: all 3 reconciles"),
			change: func(in *input) {
				in.notices = []Warning{ago(time.Second, "pod-a", "ReconcilesSucceed", "Controller website: reconciles succeed")}
			}, over: true,
		},
		"another controller's succeed again": {
			warning: ago(time.Minute, "pod-a", "ReconcilesFail", "controller website: all 3 reconciles"),
			change: func(in *input) {
				in.notices = []Warning{ago(time.Second, "pod-a", "ReconcilesSucceed", "Controller page: reconciles succeed")}
			},
		},
		"reconciles of a member that is gone": {warning: ago(time.Minute, "pod-c", "ReconcilesFail", "controller website: all"), over: true},
		"a duty fails":                        {warning: ago(time.Minute, "pod-b", "DutyFails", "duty report: all 3 runs")},
		"a duty of another now":               {warning: ago(time.Minute, "pod-a", "DutyFails", "duty report: all 3 runs"), over: true},
		"leases may be written": {
			warning: ago(time.Minute, "pod-a", "PermissionMissing", leasesRule),
			change:  func(in *input) { in.reports[0].Written = now.Add(-2 * time.Second) }, over: true,
		},
		"the report may not be written": {
			warning: ago(time.Minute, "pod-a", "PermissionMissing", leasesRule),
			change:  func(in *input) { in.reports[0].Written = now.Add(-70 * time.Second) },
		},
		"sites may not be patched": {warning: ago(9*time.Minute, "pod-a", "PermissionMissing", sitesRule)},
		"it has not said so again": {warning: ago(12*time.Minute, "pod-a", "PermissionMissing", sitesRule), over: true},
		"before it joined":         {warning: ago(61*time.Minute, "pod-a", "NotJoining", "waits"), over: true},
		"waits yet":                {warning: ago(20*time.Minute, "pod-c", "NotJoining", "waits")},
		"waited":                   {warning: ago(40*time.Minute, "pod-c", "NotJoining", "waits"), over: true},
		"not alike, and waits":     {warning: ago(time.Minute, "pod-c", "SetupDiffers", "This member takes no slots while")},
		"alike":                    {warning: ago(time.Minute, "pod-a", "SetupDiffers", "members differ in Label"), over: true},
		"not alike": {warning: ago(time.Minute, "pod-a", "SetupDiffers", "members differ in Label"), change: func(in *input) {
			in.reports[0].Setup[coverage.SettingLabel], in.reports[1].Setup[coverage.SettingLabel] = "true", "false"
		}},
		"not known whether alike":       {warning: ago(time.Minute, "pod-a", "SetupDiffers", "members differ in Label"), change: func(in *input) { in.reports, in.noReports = nil, true }},
		"the clock of a member":         {warning: ago(time.Minute, "pod-a", "ClockSkew", "member b joined 700 s away")},
		"the clock of a former member":  {warning: ago(time.Minute, "pod-a", "ClockSkew", "member c joined 700 s away"), over: true},
		"coverage":                      {warning: ago(time.Minute, "pod-a", "Coverage", "slot 7 of Website")},
		"a word that nobody here knows": {warning: ago(time.Minute, "pod-a", "Unheard", "")},
		"by one that left": {
			warning: ago(time.Minute, "pod-c", "Coverage", "slot 7 of Website"),
			change:  func(in *input) { in.notices = []Warning{ago(time.Second, "pod-c", "Leaving", "")} }, over: true,
		},
		"by one that is waiting to join": {warning: ago(time.Minute, "pod-c", "PermissionMissing", sitesRule)},
	} {
		in := healthy(t)
		in.warnings = []Warning{c.warning}
		if c.change != nil {
			c.change(&in)
		}
		r := new(memory).look(in)
		if got := r.Warnings[0]; (got.Over != "") != c.over {
			t.Errorf("%s: over %q, want %v", name, got.Over, c.over)
		}
		if len(r.Now()) != 1 && !c.over || len(r.Earlier()) != 1 && c.over {
			t.Errorf("%s: now %v, earlier %v", name, r.Now(), r.Earlier())
		}
	}
}

// The newest warning comes first, of those that repeat there is the last one, and each belongs to the process that sent
// it.
func TestNow(t *testing.T) {
	in := healthy(t)
	in.table.Members[1].Joined = now.Add(-10 * time.Minute).Unix()
	in.table.Runs[0].Next, in.table.Runs[0].Ready = "b", true
	in.table.Notes = map[uint64]table.Note{}
	for i, pod := range []string{"pod-b", "pod-a", "pod-a", "pod-b"} {
		in.warnings = append(in.warnings, Warning{At: now.Add(time.Duration(i-4) * 5 * time.Minute), Member: pod, Reason: "Coverage",
			Message: fmt.Sprintf("slot 7, for %dm%ds", i, i)})
	}
	r := new(memory).look(in)
	var got []string
	for _, w := range slices.Concat(r.Now(), r.Earlier()) {
		got = append(got, fmt.Sprint(w.ID, " ", w.Message, " ", w.Over))
	}
	want := []string{"b slot 7, for 3m3s ", "a slot 7, for 2m2s ", " slot 7, for 0m0s b has joined there since"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
