package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

var now = time.Unix(1_763_712_345, 0)

// listedAt is a list that took no time, by a machine whose clock is the API server's.
func listedAt(at time.Time) listing {
	return listing{begun: at, ended: at, date: at.Truncate(time.Second)}
}

// renew renews a Lease at that time, by a member whose clock is the API server's.
func renew(l *coordinationv1.Lease, at time.Time) {
	l.ResourceVersion = at.String()
	l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at))
	l.ManagedFields = []metav1.ManagedFieldsEntry{
		{Time: ptr.To(metav1.NewTime(at.Truncate(time.Second))), FieldsV1: managed(`{"f:spec":{"f:renewTime":{}}}`)},
		{Time: ptr.To(metav1.NewTime(now.Add(time.Hour))), FieldsV1: managed(`{"f:metadata":{"f:labels":{}}}`)},
	}
}

func managed(text string) *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	if err := f.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return f
}

// healthy is what is read of a rota in which all is well: a has 0-127, b the rest and a duty.
func healthy(t testing.TB) input {
	t.Helper()
	tab := table.New(256, slot.KeyName, 43)
	tab.UID = "uid"
	for _, id := range []string{"a", "b"} {
		tab.Put(table.Member{ID: id, Pod: "pod-" + id, Build: "v1", Weight: 1, MinFormat: 1, MaxFormat: 3, Joined: now.Unix() - 3600, Duties: "report"})
	}
	tab.Runs = []table.Run{
		{Slots: slot.Range{First: 0, Last: 127}, Owner: "a", Epoch: 41},
		{Slots: slot.Range{First: 128, Last: 255}, Owner: "b", Epoch: 42},
		{Slots: slot.Range{First: 256, Last: 256}, Owner: "b", Epoch: 43},
	}
	require.NoError(t, tab.Valid())
	in := input{
		rota: types.NamespacedName{Namespace: "ns", Name: "web"}, at: now, listed: listedAt(now), table: tab, uid: "uid", seenEpoch: 43, fence: "none",
		leases: map[string]coordinationv1.Lease{},
	}
	for _, id := range []string{"a", "b"} {
		l := coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				names.AnnotationGate: names.GateOpen, names.AnnotationEpoch: "43", names.AnnotationTableUID: "uid",
			}},
			Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To(int32(15))},
		}
		renew(&l, now.Add(-time.Second))
		in.leases[id] = l
		in.reports = append(in.reports, &coverage.Report{Member: id, Open: tab.Owned(id), Setup: map[string]string{
			coverage.SettingLease: "15s", coverage.SettingFence: "2.5s", coverage.SettingDeadline: "10s",
		}})
	}
	return in
}

// held is the message of a slot that is held back for so long.
func held(duration string) string {
	return "slot 9 cannot move on: controller website has been reconciling default/hello-7 for " + duration +
		"; other objects and slots are not held back"
}

// Each situation has its problem, names who has it, and all is well without it.
func TestProblems(t *testing.T) {
	lease := func(in *input, id string, change func(*coordinationv1.Lease)) {
		l := in.leases[id]
		l.Annotations = map[string]string{}
		maps.Copy(l.Annotations, in.leases[id].Annotations)
		change(&l)
		in.leases[id] = l
	}
	tested := map[string]bool{}
	for name, c := range map[string]struct {
		change func(*input)
		after  time.Duration // a second look comes that much later; 0: there is none
		want   string        // severity what member slots
		text   string
	}{
		"all is well": {change: func(*input) {}, after: time.Hour},
		"no owner": {change: func(in *input) { in.table.Runs[0].Owner, in.table.Runs[0].Epoch = "", 0 },
			want: "error SlotUnowned  0-127", text: "seconds"},
		"no member": {change: func(in *input) {
			in.table.Members, in.table.Duties = nil, nil
			in.table.Runs = []table.Run{{Slots: slot.Range{First: 0, Last: 255}}}
		}, want: "error SlotUnowned  0-255", text: "start some"},
		"dead": {change: func(in *input) {
			lease(in, "a", func(l *coordinationv1.Lease) {
				renew(l, now.Add(-20*time.Second))
			})
		}, want: "error MemberSilent a 0-127", text: "expired 4 s ago. Other members take its slots"},
		"lapsed, and its Lease is not over": {change: func(in *input) {
			lease(in, "a", func(l *coordinationv1.Lease) {
				renew(l, now.Add(-12*time.Second))
			})
		}, want: "error MemberStopped a 0-127", text: "11 s ago, longer than RenewDeadline"},
		"just before RenewDeadline": {change: func(in *input) {
			lease(in, "a", func(l *coordinationv1.Lease) {
				renew(l, now.Add(-11*time.Second))
			})
		}},
		"kind gone": {change: func(in *input) { in.gone = []schema.GroupKind{website} },
			want: "error KindNotServed  ", text: "does not serve Website.web.example.com"},
		"held back": {change: func(in *input) {
			in.table.Runs[0].Next, in.table.Runs[0].Ready = "b", true
			in.warnings = []Warning{
				{At: now.Add(-time.Minute), Member: "pod-a", Reason: SlotHeldBack, Message: held("5s")},
				{At: now.Add(-10 * time.Second), Member: "pod-a", Reason: SlotHeldBack, Message: held("55s")},
			}
		}, want: "warning SlotHeldBack a 9", text: "for 55s"},
		"held back before it moved": {change: func(in *input) {
			in.warnings = []Warning{{At: now.Add(-time.Minute), Member: "pod-a", Reason: SlotHeldBack, Message: held("5s")}}
		}},
		"held back by another process in that Pod": {change: func(in *input) {
			in.table.Runs[0].Next, in.table.Runs[0].Ready = "b", true
			in.table.Members[0].Joined = now.Unix() - 30
			in.warnings = []Warning{{At: now.Add(-time.Minute), Member: "pod-a", Reason: SlotHeldBack, Message: held("5s")}}
		}},
		"clock ahead": {change: func(in *input) {
			lease(in, "a", func(l *coordinationv1.Lease) { l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now.Add(time.Hour))) })
		}},
		"gate shut": {change: func(in *input) {
			lease(in, "b", func(l *coordinationv1.Lease) { l.Annotations[names.AnnotationGate] = names.GateShut })
		}, want: "error MemberStopped b 128-255", text: "API server"},
		"no Lease":        {change: func(in *input) { delete(in.leases, "b") }, want: "error LeaseMissing b 128-255"},
		"Leases not read": {change: func(in *input) { in.leases, in.noLeases = nil, true }},
		"duty of nobody":  {change: func(in *input) { in.table.Runs[2].Owner, in.table.Runs[2].Epoch = "", 0 }, want: "error DutyUnowned  ", text: "report"},
		"duty of nobody, at the end": {change: func(in *input) {
			in.table.Runs[2].Owner, in.table.Runs[2].Epoch = "", 0
			in.table.Members[0].Leaving, in.table.Members[1].Leaving = true, true
		}, want: "warning DutyUnowned  ", text: "all members are leaving"},
		"duties suspended": {change: func(in *input) { in.table.Runs[2].Owner, in.table.Runs[2].Epoch, in.table.Older = "", 0, 1 }, want: "warning DutyUnowned  ", text: "rollback"},
		"restored":         {change: func(in *input) { in.uid = "other" }, want: "error OldCopy  ", text: "restored"},
		"old copy, with members that stop or never were": {change: func(in *input) {
			in.table.Epoch = 42
			in.table.Runs[2].Epoch = 42
			delete(in.leases, "b")
			lease(in, "a", func(l *coordinationv1.Lease) { l.Annotations[names.AnnotationGate] = names.GateShut })
		}, want: "error OldCopy  ", text: "epoch 42, but members have seen 43"},
		"moves paused": {change: func(in *input) { in.table.Pause = table.Pause{Since: 1, By: "ann", Reason: "upgrade"} },
			want: "warning MovesPaused  ", text: "since 1970-01-01T00:00:01Z by ann (upgrade). When done: rota resume -n ns web"},
		"drained": {change: func(in *input) { in.table.PutDrain("b", 1, "ann", "") }, want: "warning MemberDrained b ",
			text: "by ann, and still has 128 slots and 1 duties. When done: rota undrain -n ns b web"},
		"closed":             {change: func(in *input) { in.reports[0].Open.Remove(7) }, after: 18 * time.Second, want: "error SlotClosed a 7"},
		"closed for a while": {change: func(in *input) { in.reports[0].Open.Remove(7) }, after: 17 * time.Second},
		"closed and moving":  {change: func(in *input) { in.reports[0].Open.Remove(7); in.table.Runs[0].Next = "b" }, after: 18 * time.Second},
		"moves for long":     {change: func(in *input) { in.table.Runs[0].Next, in.table.Runs[0].Ready = "b", true }, after: 61 * time.Second, want: "warning MoveStuck a 0-127", text: "61 s, in phase drain"},
		"moves for long, as reported": {change: func(in *input) {
			in.table.Runs[0].Next, in.table.Runs[0].Ready = "b", true
			in.reports[1].Moving = map[slot.Slot]time.Duration{0: 5 * time.Second, 100: 2 * time.Minute} // the longest counts
		}, want: "warning MoveStuck a 0-127", text: "120 s, in phase drain"},
		"moves":     {change: func(in *input) { in.table.Runs[0].Next = "b" }, after: time.Minute},
		"no report": {change: func(in *input) { in.reports = in.reports[:1] }, want: "warning ReportMissing b "},
		"report of old": {change: func(in *input) { in.reports[1].Written = now.Add(-42 * time.Second) },
			want: "warning ReportMissing b ", text: "for 41 s"},
		"report of late":   {change: func(in *input) { in.reports[1].Written = now.Add(-40 * time.Second) }},
		"reports not read": {change: func(in *input) { in.reports, in.noReports = nil, true }},
		"a key waits": {change: func(in *input) { in.reports[1].Waiting = map[slot.Slot]time.Duration{200: 5 * time.Minute} },
			want: "warning KeyWaiting b ", text: "300 s"},
		"a reconcile hangs": {change: func(in *input) {
			in.reports[1].Health.Worst = []coverage.KeyHealth{hangs("blog", time.Hour)}
		}, want: "error KeyHangs b 157", text: "Website default/blog has been running for 1h0m0s"},
		"an object fails": {change: func(in *input) {
			in.reports[1].Health.Worst = []coverage.KeyHealth{fails("blog", 12, time.Hour)}
		}, want: "warning KeyFails b 157", text: "12 times in a row"},
		"an object ends processes": {change: func(in *input) {
			justGot(in, time.Second)
			in.warnings = []Warning{panicAt("pod-c", "Website.web.example.com default/blog", time.Minute),
				panicAt("pod-d", "Website.web.example.com default/blog", time.Second)}
		}, want: "error KeyKills  157", text: "(Pods pod-c, pod-d)"},
		"probation": {change: func(in *input) {
			in.table.Runs[0].Owner = "b"
			in.table.Members[0].Joined = now.Unix() - 60
			in.table.Expels = []table.Expel{{Pod: "pod-a", At: now.Unix() - 500}, {Pod: "pod-a", At: now.Unix() - 70}}
			in.reports[1].Open = in.table.Owned("b")
		}, want: "warning Probation a ", text: "expelled 2 times"},
		"expelled once": {change: func(in *input) {
			in.table.Runs[0].Owner = "b"
			in.table.Members[0].Joined = now.Unix() - 60
			in.table.Expels = []table.Expel{{Pod: "pod-a", At: now.Unix() - 700}, {Pod: "pod-a", At: now.Unix() - 70}}
			in.reports[1].Open = in.table.Owned("b")
		}},
		"another one leads": {change: func(in *input) {
			in.reports[0].Open, in.reports[0].Waits = slot.Set{}, `this member waits for leader election's Lease, held by "c"`
		}, want: "warning NotElected a 0-127", text: `held by "c"`},
		"pin unmet": {change: func(in *input) {
			in.table.PutPin(table.Pin{Object: "team/site", Labels: "pool=large", Since: now.Unix()})
		}, want: "warning PinUnmet  " + fmt.Sprint(slot.Count(256).Of(slot.KeyName.Hash("team", "site", ""))), text: "rota unpin team/site"},
		"pin met": {change: func(in *input) {
			in.table.PutPin(table.Pin{Object: "team/site", Labels: "pool=large", Since: now.Unix()})
			in.table.Members[0].Labels = "pool=large"
		}},
		"canary waits": {change: func(in *input) {
			in.table.Canary = table.Canary{Build: "v22", Steps: []int{5}, Since: now.Unix() - 7200}
		}, want: "warning CanaryWaits  ", text: "members of build v1 have"},
		"canary waits for its first member": {change: func(in *input) {
			in.table.Canary = table.Canary{Build: "v2", Steps: []int{5}, Since: now.Unix() - 60}
		}},
		"canary back": {change: func(in *input) {
			in.table.Members[0].Build = "v2"
			in.table.Canary = table.Canary{Build: "v2", State: table.CanaryBack, Steps: []int{5}, Since: now.Unix() - 60, Verdict: "2 of 9"}
		}, want: "warning CanaryBack  ", text: "2 of 9. Its members (1) get no slots"},
		"kind refused, by two": {change: func(in *input) {
			without := func(n slot.Slot) coverage.Refused {
				return coverage.Refused{Kind: schema.GroupKind{Kind: "ConfigMap"}, Since: now.Add(time.Duration(n) * time.Second),
					Without: slot.SetOf(slot.Range{First: n, Last: n}), Error: "conversion webhook x failed"}
			}
			in.reports[0].Refused, in.reports[1].Refused = []coverage.Refused{without(7)}, []coverage.Refused{without(200)}
		}, want: "error KindRefused  7,200", text: "ConfigMap since 2025-11-21T08:05:52Z"},
		"kind refused, nothing lacks it": {change: func(in *input) {
			in.reports[0].Refused = []coverage.Refused{{Kind: schema.GroupKind{Kind: "ConfigMap"}, Since: now, Error: "busy"}}
		}, want: "warning KindRefused  ", text: "busy. Fix"},
		"labels refused": {change: func(in *input) {
			in.reports[0].Unlabelled = []coverage.Refused{{Kind: schema.GroupKind{Kind: "ConfigMap"}, Since: now,
				Without: slot.SetOf(slot.Range{First: 7, Last: 7}), Error: "objects: 2, the first: label configmaps a/b: frozen"}}
		}, want: "warning LabelsRefused  7", text: "Slots: 7; objects: 2, the first: label configmaps a/b: frozen. Make"},
		"no room": {change: func(in *input) {
			in.table.Runs[0] = table.Run{Slots: slot.Range{First: 0, Last: 127}}
			uses(in, 950)
		}, want: "error NoRoom  0-127", text: "one takes about 13 MiB"},
		"no memory to lose a member": {change: func(in *input) { uses(in, 700) }, want: "warning NoSpareMemory  ",
			text: "there are 2 members, the slots of one need 600 MiB, and the others have room for 200 MiB"},
		"one member fewer would fit": {change: func(in *input) { uses(in, 490) }},
		"options clash":              {change: func(in *input) { in.reports[1].Setup[coverage.SettingDeadline] = "20s" }, want: "error SetupClash  ", text: "RenewDeadline must be shorter"},
	} {
		in := healthy(t)
		c.change(&in)
		var m memory
		r := m.look(in)
		if c.after > 0 {
			if early := r.Problems; len(early) > 0 {
				t.Errorf("%s: already at the first look: %v", name, early)
			}
			in.at = in.at.Add(c.after)
			in.listed = listedAt(in.at)
			for id := range in.leases {
				lease(&in, id, func(l *coordinationv1.Lease) { renew(l, in.at) })
			}
			r = m.look(in)
		}
		var got []string
		for _, p := range r.Problems {
			tested[p.What] = true
			got = append(got, strings.Join([]string{string(p.Severity), p.What, p.Member, p.Slots}, " "))
		}
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		if len(r.Problems) > 0 && slices.Contains(r.Differences, r.Problems[0].Message) {
			t.Errorf("%s: a problem is a difference as well: %v", name, r.Differences)
		}
		if !slices.Equal(got, want) || len(got) > 0 && !strings.Contains(r.Problems[0].Message, c.text) {
			t.Errorf("%s: %+v, want %q with %q", name, r.Problems, c.want, c.text)
		}
	}
	for _, what := range Whats() {
		if !tested[what] {
			t.Errorf("no case for %s", what)
		}
	}
}

// uses has both members report that they use so many MiB of 1000, and 100 without slots.
func uses(in *input, mib int) {
	for _, l := range in.leases {
		l.Annotations[names.AnnotationMemory] = fmt.Sprintf("%d %d %d", mib<<20, 1000<<20, 100<<20)
	}
}

// What is put together of table, Leases and reports.
func TestBuild(t *testing.T) {
	in := healthy(t)
	in.table.Runs[0].Next = "b"
	in.table.Runs[1].Unsettled = true
	in.table.Duties = append(in.table.Duties, table.OwnDuties+"scrub") // counts as none
	in.table.Runs = append(in.table.Runs, table.Run{Slots: slot.Range{First: 257, Last: 257}, Owner: "b", Epoch: 43})
	in.table.Notes = map[uint64]table.Note{42: {Cause: table.CauseExpelled}}
	in.reports[0].Handovers = []coverage.Handover{{
		Slots: slot.SetOf(slot.Range{First: 0, Last: 127}), Count: 128, From: "c", Cause: table.CauseHanded, Epoch: 41,
		Ended: now.Add(-time.Minute), Warm: 200 * time.Millisecond,
	}}
	in.reports[1].Handovers = []coverage.Handover{{Duty: "report", Count: 1, Cause: table.CauseAssigned, Epoch: 43, Ended: now}}
	in.reports[1].Waiting = map[slot.Slot]time.Duration{200: 2 * time.Second, 201: 3 * time.Second}
	in.table.Drains = []table.Drain{{ID: "a", Since: now.Unix(), By: "ann"}}
	r := new(memory).look(in)
	a, b := r.Members[0], r.Members[1]
	if a.Owned != 128 || a.Going != 128 || b.Coming != 128 || *a.Open != 128 || *a.Left != 15 || a.State != Draining || b.State != Activating || b.Duties != 1 {
		t.Errorf("members %+v %+v", a, b)
	}
	if members, slots := r.Working(); members != 2 || slots != 128 {
		t.Errorf("%d members work on %d slots, want 2 on those that are not activating", members, slots)
	}
	if *b.OldestWaiting != 3 || a.OldestWaiting != nil {
		t.Errorf("waiting: %v, %v", a.OldestWaiting, b.OldestWaiting)
	}
	if len(r.Moves) != 2 || r.Moves[0].Phase != "warm" || r.Moves[0].From != "a" || r.Moves[1].Phase != "activate" || r.Moves[1].To != "b" {
		t.Errorf("moves %+v", r.Moves)
	}
	if r.Runs[0].Cause != "handed" || r.Runs[1].Cause != "expelled" {
		t.Errorf("runs %+v", r.Runs)
	}
	if len(r.Handovers) != 2 || r.Handovers[0].Duty != "report" || r.Handovers[1].From != "c" || r.Handovers[1].Warm != 0.2 || r.Handovers[1].Slots != "0-127" {
		t.Errorf("handovers %+v", r.Handovers)
	}
	if r.Duties[0] != (Duty{Name: "report", Owner: "b", State: "Working"}) {
		t.Errorf("duties %+v", r.Duties)
	}
}

// The dashboard tells by this who was expelled and who left. It reads JSON, where no expels are an empty list.
func TestBuildExpels(t *testing.T) {
	in := healthy(t)
	for _, want := range [][]Expel{
		{},
		{{Pod: "pod-c", At: now.Add(-5 * time.Minute)}, {Pod: "pod-a", At: now.Add(-9 * time.Second)}, {Pod: "pod-c", At: now}},
	} {
		in.table.Expels = nil
		for _, e := range want {
			in.table.Expels = append(in.table.Expels, table.Expel{Pod: e.Pod, At: e.At.Unix()})
		}
		text, err := json.Marshal(new(memory).look(in))
		require.NoError(t, err)
		var got struct {
			Expels []Expel `json:"expels"` // nil for null, and without the field
		}
		require.NoError(t, json.Unmarshal(text, &got))
		if diff := cmp.Diff(want, got.Expels); diff != "" {
			t.Errorf("of %v (-want +got):\n%s", in.table.Expels, diff)
		}
	}
}

// Where no member renews its Lease, nobody takes their slots.
func TestNobodyRenews(t *testing.T) {
	in := healthy(t)
	for id, l := range in.leases {
		renew(&l, now.Add(-20*time.Second))
		in.leases[id] = l
	}
	found := new(memory).look(in).Problems
	if len(found) != 2 {
		t.Fatalf("problems %v, want one of each member", found)
	}
	for _, p := range found {
		if p.What != MemberSilent || !strings.Contains(p.Message, "no member takes its slots") {
			t.Errorf("%s: %s", p.What, p.Message)
		}
	}
}
