package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

func TestBadUse(t *testing.T) {
	for args, want := range map[string]string{
		"demo --slots 100":          "power of two",
		"demo --rate -1":            "rate -1",
		"demo --objects -3":         "objects -3",
		"demo --output xml":         "must be text or json",
		"demo --delivery pigeon":    "pigeon",
		"demo --lease-duration -1s": "must be above 0",
		"demo --audit-log x":        "only with a kubeconfig",
		"demo --kubeconfig /no/x":   "/no/x",
		"demo something":            "something",
		"status a b":                "name of one rota",
		"status A --kubeconfig /no": "/no",
		"status --color pink":       "must be auto, always or never",
		"split kmc":                 "did you mean kcm?",
		"status a --kubeconfig /no": "/no",
		"verify a b":                "name of one rota",
		"verify a --every 0s":       "--every 0s",
		"verify a --kubeconfig /no": "/no",
		"labels":                    "requires at least 1 arg",
		"labels Pod services":       "\"services\" is no kind",
		"labels Pod .apps":          "\".apps\" is no kind",
		"no-such-thing":             "no-such-thing",
	} {
		cmd := newCommand()
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rota %s: %v, want an error with %q", args, err, want)
		}
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"version"})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "go1") {
		t.Errorf("%v: %q", err, out.String())
	}
}

func TestPrintLabels(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"labels", "Deployment.apps", "Pod"})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []schema.GroupKind{{Group: "apps", Kind: "Deployment"}, {Kind: "Pod"}} {
		for _, key := range []slot.Key{slot.KeyName, slot.KeyNamespace, slot.KeyUID} {
			for _, label := range []string{delivery.HashLabel(key, kind), delivery.OwnerLabel(key, kind)} {
				if !strings.Contains(out.String(), label) {
					t.Errorf("%s by %s: no %s in\n%s", kind, key, label, out.String())
				}
			}
		}
	}
}

func TestPrintStatus(t *testing.T) {
	tab := table.New(256, slot.KeyName, 43)
	for _, id := range []string{"web-0-a", "web-1-b", "web-2-c"} {
		tab.Put(table.Member{ID: id, Pod: id[:5], Build: "v7", Weight: 1, MinFormat: 1, MaxFormat: 2, Leaving: id == "web-1-b"})
	}
	tab.Runs = []table.Run{
		{Slots: slot.Range{First: 0, Last: 84}, Owner: "web-0-a", Epoch: 41, Unsettled: true},
		{Slots: slot.Range{First: 85, Last: 127}, Owner: "web-1-b", Epoch: 40, Next: "web-0-a", Ready: true},
		{Slots: slot.Range{First: 128, Last: 255}},
	}
	tab.Notes = map[uint64]table.Note{41: {Cause: table.CauseAssigned}}
	tab.PutGone([]table.Gone{{Slot: 3, Kind: "Website.example.com", Namespace: "a", Name: "b"}, {Slot: 5, Kind: "Website.example.com", Namespace: "a", Name: "c"}})
	if err := tab.Valid(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"web-3-d", "web-4-e"} {
		tab.Put(table.Member{ID: id, Pod: id[:5], Build: "v7", Weight: 1, MinFormat: 1, MaxFormat: 1})
	}
	now := time.Unix(1_700_000_000, 0)
	lease := func(gate string, renewed time.Duration) coordinationv1.Lease {
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationGate: gate}},
			Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-renewed))), LeaseDurationSeconds: ptr.To(int32(15))},
		}
	}
	var out bytes.Buffer
	if err := printStatus(&out, tab, map[string]coordinationv1.Lease{
		"web-0-a": lease(names.GateOpen, 1900*time.Millisecond), "web-1-b": lease(names.GateShut, 0),
		"web-3-d": lease(names.GateOpen, 16*time.Second), "web-4-e": lease(names.GateOpen, -time.Minute), // its clock is ahead
	}, now); err != nil {
		t.Fatal(err)
	}
	want := `epoch 43, 256 slots by Name, 5 members

MEMBER   BUILD  SLOTS  COMING  GOING  LEASE    GATE  STATE
web-0-a  v7     85     43      0      2s ago   open  activating 85
web-1-b  v7     43     0       43     0s ago   shut  leaving
web-2-c  v7     0      0       0      missing  -     waiting for slots
web-3-d  v7     0      0       0      16s ago  open  not renewing its Lease
web-4-e  v7     0      0       0      0s ago   open  waiting for slots

128 slots belong to nobody

2 deletions were left to the next owners of slots that are activating

moving:
  85-127  web-1-b -> web-0-a (ready, draining or waiting for its turn)
`
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// `rota status` says who has which duty.
func TestPrintDuties(t *testing.T) {
	tab := table.New(256, slot.KeyName, 43)
	for _, id := range []string{"web-0-a", "web-1-b"} {
		tab.Put(table.Member{ID: id, Pod: id[:5], Weight: 1, MinFormat: 1, MaxFormat: 3, Duties: "audit,backup,janitor"})
	}
	give := func(name, owner, next string) {
		s, _ := tab.DutySlot(name)
		tab.Update(slot.SetOf(slot.Range{First: s, Last: s}), func(r *table.Run) { r.Owner, r.Epoch, r.Next = owner, 43, next })
	}
	give("audit", "web-0-a", "")
	give("backup", "web-1-b", "web-0-a")
	var out bytes.Buffer
	if err := printStatus(&out, tab, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	want := `
DUTY     MEMBER   STATE
audit    web-0-a  working
backup   web-1-b  moving to web-0-a
janitor  -        nobody does it
`
	if got := out.String(); !strings.HasSuffix(got, want) || strings.Contains(got, "moving:") || strings.Contains(got, "257") {
		t.Errorf("got:\n%s\nwant at the end:\n%s", got, want)
	}
}

// What members differ in is a row of `rota status`, and one of `rota verify`.
func TestPrintDifferences(t *testing.T) {
	reports := []*coverage.Report{
		{Member: "web-0-a", Digests: coverage.Digests{schema.GroupKind{Kind: "ConfigMap"}: nil}, Setup: map[string]string{coverage.SettingWorkload: "web"}},
		{Member: "gone", Digests: coverage.Digests{schema.GroupKind{Kind: "Pod"}: nil}},
		{Member: "web-1-b", Setup: map[string]string{coverage.SettingWorkload: "web"}},
	}
	tab := table.New(256, slot.KeyName, 43)
	for _, id := range []string{"web-0-a", "web-1-b"} {
		tab.Put(table.Member{ID: id, Pod: id[:5], Weight: 1, MinFormat: 1, MaxFormat: 1})
	}
	found := coverage.DifferencesIn(tab, reports)
	const line = "members differ in kind ConfigMap: not sharded (web-1-b), sharded by its own key (web-0-a)\n"
	var out bytes.Buffer
	want := "\ndifferences between members (a rollout may bring them, and ends them, unless a reason is given):\n  " + line
	if err := printDifferences(&out, found); err != nil || out.String() != want {
		t.Errorf("%v, status: %q, want %q", err, out.String(), want)
	}
	if got, want := describe(nil, found), "not counted, since a rollout may have brought it: "+line; got != want {
		t.Errorf("verify: %q, want %q", got, want)
	}
	out.Reset()
	if err := printDifferences(&out, nil); err != nil || out.Len() > 0 {
		t.Errorf("%v, %q, want nothing", err, out.String())
	}
}
