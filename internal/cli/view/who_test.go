package view

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

var (
	website    = schema.GroupKind{Group: "web.example.com", Kind: "Website"}
	deployment = schema.GroupKind{Group: "apps", Kind: "Deployment"}
)

// question is what somebody asks in a test, and what is there.
type question struct {
	in     input
	about  subject
	exist  listed
	before []input // what the Reader saw before
}

// sites puts a Website default/blog into slot 157, which b owns, with a Deployment of its own. b's report has both.
func sites(t *testing.T) *question {
	t.Helper()
	in := healthy(t)
	site := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "blog", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
	}}
	hash := slot.HashName("default", "blog")
	n := in.table.Slots.Of(hash)
	if in.table.At(n).Owner != "b" {
		t.Fatalf("slot %d is not that of b", n)
	}
	for _, r := range in.reports {
		r.Owners = map[schema.GroupKind]map[schema.GroupKind]bool{deployment: {website: true}}
		r.Digests = coverage.Digests{website: {}, deployment: {}}
		r.Handovers = []coverage.Handover{{
			Slots: r.Open, Count: 128, Cause: table.CauseHanded, From: "c", Epoch: map[string]uint64{"a": 41, "b": 42}[r.Member], Ended: now.Add(-time.Hour),
		}}
	}
	b := in.reports[1]
	b.Digests[website][n] = sharding.Digest{Objects: 1, Hashes: hash}
	b.Digests[deployment][n] = sharding.Digest{Objects: 1, Hashes: slot.HashName("default", "hello-page")}
	return &question{
		in: in, about: subject{kind: website, namespaced: true, namespace: "default", name: "blog", object: site},
		exist: listed{objects: []listedObject{{n, hash, "default/blog"}}},
	}
}

// child asks about the Deployment instead.
func (q *question) child(owner *metav1.OwnerReference) {
	q.about.kind, q.about.name = deployment, "hello-page"
	q.about.object.Name, q.about.object.Namespace = "hello-page", "default"
	q.exist.objects[0].hash, q.exist.objects[0].path = slot.HashName("default", "hello-page"), "default/hello-page"
	q.about.object.OwnerReferences = nil
	if owner != nil {
		q.about.object.OwnerReferences = []metav1.OwnerReference{*owner}
	}
}

func (q *question) ask() *Who {
	var m memory
	for _, in := range q.before {
		m.look(in)
	}
	r := m.look(q.in)
	return r.judge(q.about, r.place(q.about), q.exist)
}

func (q *question) lease(id string, change func(*coordinationv1.Lease)) {
	l := q.in.leases[id]
	l.Annotations = map[string]string{names.AnnotationGate: names.GateOpen, names.AnnotationEpoch: "43", names.AnnotationTableUID: "uid"}
	change(&l)
	q.in.leases[id] = l
}

func (q *question) run(change func(*table.Run)) {
	change(&q.in.table.Runs[1])
	if err := q.in.table.Valid(); err != nil {
		panic(err)
	}
}

var byWebsite = &metav1.OwnerReference{APIVersion: "web.example.com/v1", Kind: "Website", Name: "blog", Controller: ptr.To(true)}

// Each situation has its answer, and says why.
func TestWho(t *testing.T) {
	n := slot.Count(256).Of(slot.HashName("default", "blog"))
	for name, c := range map[string]struct {
		change func(*question)
		works  Works
		words  []string // in what it says
	}{
		"all is well": {func(*question) {}, WorksYes, []string{"b works on Website default/blog", "its name", "Filter",
			"according to its report b holds it; no other object of the kind is in slot 157"}},
		"a child":  {func(q *question) { q.child(byWebsite) }, WorksYes, []string{"b works on Deployment default/hello-page", "Website default/blog", "the name of its controlling owner"}},
		"no owner": {func(q *question) { q.child(nil) }, WorksNo, []string{"it has no controlling owner"}},
		"another owner": {func(q *question) {
			q.child(&metav1.OwnerReference{APIVersion: "v1", Kind: "Other", Name: "o", Controller: ptr.To(true)})
		}, WorksNo, []string{"its controlling owner is Other o"}},
		"owner that does not control": {func(q *question) {
			q.child(&metav1.OwnerReference{APIVersion: "web.example.com/v1", Kind: "Website", Name: "blog"})
		}, WorksNo, []string{"it has no controlling owner"}},
		"stock program": {func(q *question) {
			q.about.kind = schema.GroupKind{Kind: "Pod"}
			for _, report := range q.in.reports {
				report.Setup[coverage.SettingDispatched] = "Pod"
			}
		}, WorksUnknown, []string{"stock programs work on the kind (rota run)", "slot 157, which b owns"}},
		"other kind": {func(q *question) { q.about.kind = schema.GroupKind{Kind: "Pod"} }, WorksNo,
			[]string{"do not shard kind Pod", "Website.web.example.com, and by their owners Deployment.apps", "report (b)"}},
		"no such object": {func(q *question) { q.about.object = nil }, WorksNo, []string{"does not exist; b would work on it"}},
		"deleted while its slot moved": {func(q *question) {
			q.about.object = nil
			q.in.table.Gone = []table.Gone{{Slot: n, Kind: website.String(), Namespace: "default", Name: "blog"}}
		}, WorksNo, []string{"b is about to reconcile the deletion"}},
		"unreadable": {func(q *question) { q.about.object, q.about.unread = nil, errors.New("forbidden\nRole") }, WorksYes,
			[]string{"b works on", "cannot be read, so it may not exist: forbidden"}},
		"being deleted": {func(q *question) {
			q.about.object.DeletionTimestamp, q.about.object.Finalizers = ptr.To(metav1.NewTime(now)), []string{"x/y"}
		}, WorksYes, []string{"once its finalizers are removed: x/y"}},
		"slot without owner": {func(q *question) { q.run(func(r *table.Run) { *r = table.Run{Slots: r.Slots} }) }, WorksNo,
			[]string{fmt.Sprintf("slot %d has no owner", n), SlotUnowned}},
		"silent": {func(q *question) {
			q.lease("b", func(l *coordinationv1.Lease) { renew(l, now.Add(-time.Minute)) })
		}, WorksNo, []string{"its Lease expired 44s ago", MemberSilent}},
		"late": {func(q *question) {
			q.lease("b", func(l *coordinationv1.Lease) {
				renew(l, now.Add(-10*time.Second))
			})
		}, WorksYes, []string{"unless it is dead: it has not renewed its Lease for 9s", "within 6s"}},
		"late for its own period": {func(q *question) {
			q.in.reports[1].Setup[coverage.SettingRetry] = "3.3s"
			q.lease("b", func(l *coordinationv1.Lease) {
				renew(l, now.Add(-10*time.Second))
			})
		}, WorksYes, []string{"b works on Website default/blog\n"}},
		"stopped": {func(q *question) {
			q.lease("b", func(l *coordinationv1.Lease) { l.Annotations[names.AnnotationGate] = names.GateShut })
		}, WorksNo, []string{"has stopped"}},
		"no Lease": {func(q *question) { delete(q.in.leases, "b") }, WorksNo, []string{"has no Lease"}},
		"report of old": {func(q *question) { q.in.reports[1].Written = q.in.listed.date.Add(-time.Minute) }, WorksUnknown,
			[]string{"last reported what it works on 59s ago"}},
		"unreadable Lease": {func(q *question) {
			delete(q.in.leases, "b")
			q.in.unknown = []Unknown{{What: "Leases", Error: "may not\nlist"}}
		}, WorksUnknown,
			[]string{"it renews its Lease: may not list"}},
		"unreadable reports": {func(q *question) {
			q.in.reports, q.in.unknown = nil, []Unknown{{What: "reports", Error: "may not list"}}
		}, WorksUnknown,
			[]string{"the members' kinds could not be read: may not list"}},
		"another one leads": {func(q *question) {
			q.in.reports[1].Waits = "this member waits for leader election's Lease"
			q.in.table.Notes = map[uint64]table.Note{42: {Cause: table.CauseHanded}}
			q.run(func(r *table.Run) { r.Unsettled = true })
		}, WorksNo, []string{"no member works on Website default/blog: b owns slot 157, but it waits for leader"}},
		"old copy": {func(q *question) { q.in.seenEpoch = 44 }, WorksNo,
			[]string{"an old copy overwrote it"}},
		"activating after an expel": {func(q *question) {
			q.in.table.Notes = map[uint64]table.Note{42: {Cause: table.CauseExpelled}}
			q.run(func(r *table.Run) { r.Unsettled = true })
		}, WorksNo, []string{"waits for FenceDelay", "activate"}},
		"activating after a handover": {func(q *question) {
			q.in.table.Notes = map[uint64]table.Note{42: {Cause: table.CauseHanded}}
			q.run(func(r *table.Run) { r.Unsettled = true })
		}, WorksNo, []string{"the last writes of the former owner"}},
		"moving": {func(q *question) { q.run(func(r *table.Run) { r.Next, r.Ready = "a", true }) }, WorksYes, []string{"b works on", "b > a drain"}},
		"no report": {func(q *question) { q.in.reports = q.in.reports[:1] }, WorksYes,
			[]string{"b does not report what it works on"}},
		"no members": {func(q *question) {
			q.in.table, q.in.reports = table.New(256, slot.KeyName, 43), nil
			q.in.table.UID = "uid"
		}, WorksNo,
			[]string{"rota ns/web has no members: start some"}},
		"no reports":     {func(q *question) { q.in.reports = nil }, WorksUnknown, []string{"no member reports", fmt.Sprintf("in slot %d, which b owns", n)}},
		"closed for now": {func(q *question) { q.in.reports[1].Open = slot.Set{} }, WorksUnknown, []string{"according to its last report; reports come every few"}},
		"closed for long": {func(q *question) {
			q.in.reports[1].Open = slot.Set{}
			long := q.in
			long.at = now.Add(-time.Minute)
			q.before = []input{long}
		}, WorksNo, []string{"and has not for long", SlotClosed}},
		"report from before": {func(q *question) { q.in.reports[1].Open, q.in.reports[1].Handovers = slot.Set{}, nil }, WorksYes, []string{"after its last report", "does not cover slot"}},
		"an older build":     {func(q *question) { delete(q.in.reports[1].Digests, website) }, WorksNo, []string{"does not shard kind Website"}},
		"left out, alone": {func(q *question) {
			q.in.reports[1].Digests[website] = nil
			q.in.reports[1].Digests[website] = map[slot.Slot]sharding.Digest{}
		}, WorksNo,
			[]string{"does not hold it: its informers' label selector", "has no object of the kind"}},
		"left out beside others": {func(q *question) {
			q.exist.objects = append(q.exist.objects, listedObject{n, 17, "x/y"}, listedObject{n, 18, "x/z"})
			q.in.reports[1].Digests[website][n] = sharding.Digest{Objects: 2, Hashes: 17 ^ 18}
		}, WorksNo, []string{"according to its report, of the 3 objects of the kind in slot 157, b holds 2: x/y, x/z"}},
		"held beside others that are left out": {func(q *question) {
			q.exist.objects = append(q.exist.objects, listedObject{n, 17, "x/y"}, listedObject{n, 18, "x/z"}, listedObject{n + 1, 19, "x/a"})
		}, WorksYes, []string{"b works on Website default/blog\n", "holds 1: default/blog"}},
		"others come and go": {func(q *question) { q.in.reports[1].Digests[website][n] = sharding.Digest{Objects: 2, Hashes: 99} }, WorksYes,
			[]string{"but b reported 2 different ones a few seconds ago"}},
		"more than this command lists": {func(q *question) { q.exist = listed{not: "too many"} }, WorksYes, []string{"b works on Website", "too many"}},
		"new": {func(q *question) {
			q.about.object.CreationTimestamp = metav1.NewTime(now)
			q.in.reports[1].Digests[website] = map[slot.Slot]sharding.Digest{}
		}, WorksYes, []string{"younger than 15s"}},
		"label missing": {func(q *question) { q.label(""); q.gone(n) }, WorksNo, []string{"it does not have the label rota.dev/hash-website-", "no member labels the kind"}},
		"label wrong": {func(q *question) {
			q.label("7")
			q.gone(n)
			q.in.table.Duties = []string{"rota.dev/label/Website.web.example.com"}
			for i := range q.in.table.Members {
				q.in.table.Members[i].Duties = q.in.table.Duties[0]
			}
		}, WorksNo, []string{" is 7 but should be ", "b labels the kind"}},
		"label refused": {func(q *question) {
			q.label("")
			q.gone(n)
			q.in.reports[0].Unlabelled = []coverage.Refused{{Kind: website, Without: slot.SetOf(slot.Range{First: n, Last: n}), Error: "frozen"}}
		}, WorksNo, []string{"it does not have the label", "the API server rejects such labels", "within seconds: frozen"}},
		"label refused, held": {func(q *question) {
			q.label("")
			q.in.reports[0].Unlabelled = []coverage.Refused{{Kind: website, Error: "frozen"}}
		}, WorksYes, []string{"the API server rejects labels of the kind, so members get all its objects: frozen"}},
		"label right": {func(q *question) { q.label(sharding.LabelValue(slot.HashName("default", "blog"))) }, WorksYes, []string{"SlotLabel", "b holds it"}},
		"dispatched": {func(q *question) { q.in.reports[1].Setup[coverage.SettingDispatched] = "Pod,Website.web.example.com" }, WorksYes,
			[]string{"b hands Website default/blog out to workers"}},
		"a key waits": {func(q *question) {
			q.in.reports[1].Waiting = map[slot.Slot]time.Duration{n: 12 * time.Second}
			q.in.reports[1].Blocked = []coverage.Blocked{{Controller: "site", Workers: 1, Waiting: 3}}
		}, WorksYes, []string{"hanging reconciles keep all workers of controller site busy"}},
		"a warning": {func(q *question) {
			q.in.warnings = []Warning{
				{At: now, Member: "pod-b", Reason: "ReconcilesFail"}, {At: now, Member: "a", Reason: "Other"},
				{At: now.Add(-2 * time.Hour), Member: "pod-b", Reason: "OfAFormerProcess"},
				{At: now, Member: "pod-b", Reason: "OfAnotherSlot", Message: "controller c panicked at Site default/b in slot 7."},
				{At: now.Add(-time.Minute), Member: "pod-a", Reason: "Coverage", Message: "slots 3, 150-160: waiting for 5m0s"},
				{At: now, Member: "pod-a", Reason: "Coverage", Message: "slots 3, 150-160: waiting for 6m0s"},
			}
		}, WorksYes, []string{"ReconcilesFail", "waiting for 6m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := sites(t)
			c.change(q)
			w := q.ask()
			text := w.Answer + "\n" + fmt.Sprint(w.Reasons, w.Notes, w.Problems, w.Warnings, w.By, w.Owner, w.Delivery, w.Evidence)
			if w.Move != nil {
				text += fmt.Sprint(w.Move.From, " > ", w.Move.To, " ", w.Move.Phase)
			}
			if w.Works != c.works {
				t.Errorf("works: %s, want %s", w.Works, c.works)
			}
			for _, word := range c.words {
				if !strings.Contains(text, word) {
					t.Errorf("no %q in\n%s", word, text)
				}
			}
			if (w.Works == WorksYes) == (len(w.Reasons) > 0) {
				t.Errorf("works: %s, with reasons %q", w.Works, w.Reasons)
			}
			for _, other := range []string{"OfAFormerProcess", "OfAnotherSlot", "waiting for 5m0s"} {
				if strings.Contains(text, other) {
					t.Errorf("a warning of another process or slot, or twice: %v", w.Warnings)
				}
			}
			if len(w.Warnings) > 0 && w.Warnings[0].Member == "a" {
				t.Error("the warning of another member")
			}
		})
	}
}

// label has the members select by a label, which the object has with that value.
func (q *question) label(value string) {
	for _, r := range q.in.reports {
		r.Setup[coverage.SettingDelivery] = "SlotLabel"
	}
	if value != "" {
		q.about.object.Labels = map[string]string{sharding.HashLabel(slot.KeyName, website): value}
	}
}

// gone takes the object out of the report and the list.
func (q *question) gone(n slot.Slot) {
	delete(q.in.reports[1].Digests[website], n)
	q.exist.objects = nil
}

// With key UID an object must be read to know its slot.
func TestWhoByUID(t *testing.T) {
	q := sites(t)
	q.in.table.Key = slot.KeyUID
	for _, r := range q.in.reports {
		r.Setup[coverage.SettingDelivery] = "ShardSelector"
	}
	w := q.ask()
	if n := int(slot.Count(256).Of(slot.HashUID("u"))); w.Slot == nil || *w.Slot != n || w.By != "its UID" || w.Delivery != "ShardSelector" || w.Label != "" {
		t.Errorf("%+v, want slot %d by its UID", w, n)
	}
	q.about.object = nil
	if w := q.ask(); w.Slot != nil || w.Works != WorksNo || w.Answer != "no member works on Website default/blog: there is no Website.web.example.com of that name" {
		t.Errorf("%+v", w)
	}
	q.about.unread = errors.New("forbidden")
	r := build(q.in)
	if p := r.place(q.about); !strings.Contains(p.nowhere, "could not be read") {
		t.Errorf("%+v", p)
	}
}

// In a rollout that changes how a kind is sharded, the object is its owner's by the owner's way.
func TestWhoOfMixedMembers(t *testing.T) {
	q := sites(t)
	q.child(byWebsite)
	q.in.reports[0].Owners = nil // a shards Deployments by their own names
	if w := q.ask(); w.Member != "a" || len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "b also owns it") {
		t.Errorf("%+v", w)
	}
	q.about.name, q.about.object.Name = "docs", "docs" // in a slot of b by its own name, too
	q.exist.objects[0].hash = slot.HashName("default", "docs")
	q.in.reports[1].Digests[deployment][157] = sharding.Digest{Objects: 1, Hashes: slot.HashName("default", "docs")}
	if w := q.ask(); w.Member != "b" || len(w.Notes) > 0 || w.Owner != "Website default/blog" || w.Works != WorksYes {
		t.Errorf("%+v", w)
	}
}

func TestReasonOf(t *testing.T) {
	in := healthy(t)
	in.table.Expels = []table.Expel{{Pod: "web-3", At: now.Unix() - 60}}
	r := build(in)
	soon, late := r.Members[1].Joined.Add(4*time.Second), r.Members[1].Joined.Add(time.Hour)
	for _, c := range []struct {
		cause, from string
		at          *time.Time
		want        Reason
		text        string
	}{
		{"assigned", "", &soon, Assigned, "it had no owner"},
		{"expelled", "web-3-x", &soon, Expelled, "web-3-x was expelled"},
		{"expelled", "", nil, Expelled, "its former owner was expelled"},
		{"handed", "a", &soon, Joined, "b had joined 4s earlier, and got its share from a"},
		{"handed", "a", &late, Rebalanced, "a handed it over to rebalance"},
		{"handed", "gone", &soon, Left, "gone handed it over, and is gone now"},
		{"handed", "web-3-x", &late, Rebalanced, "web-3-x handed it over"},
		{"handed", "", &late, "", "a former owner"},
		{"", "", nil, "", "no longer known"},
	} {
		if got, text := r.reasonOf(c.cause, "b", c.from, c.at); got != c.want || !strings.Contains(text, c.text) {
			t.Errorf("%s from %q: %s, %q; want %s with %q", c.cause, c.from, got, text, c.want, c.text)
		}
	}
	r.Reports["b"].Handovers = []coverage.Handover{{Count: 1, Ended: soon.Add(-11 * time.Second)}}
	if got, _ := r.reasonOf("handed", "b", "a", &soon); got != Rebalanced {
		t.Errorf("not the first slots: %s", got)
	}
	r.Notices = []Warning{{At: soon.Add(-time.Second), Reason: "MemberDrained", Message: "member a gives"}}
	if got, _ := r.reasonOf("handed", "b", "a", &soon); got != WasDrained {
		t.Errorf("from one that was drained then: %s", got)
	}
	r.Notices = append(r.Notices, Warning{At: soon.Add(-time.Millisecond), Reason: "MemberUndrained", Message: "member a gets"})
	if got, _ := r.reasonOf("handed", "b", "a", &soon); got != Rebalanced {
		t.Errorf("from one that was not drained any more: %s", got)
	}
	r.Members[0].State = Leaving
	if got, _ := r.reasonOf("handed", "b", "a", &soon); got != Left {
		t.Errorf("from one that leaves: %s", got)
	}
	r.Members[0].State, r.Members[0].Drain = Working, &Drain{Since: soon.Add(-time.Second)}
	if got, _ := r.reasonOf("handed", "b", "a", &soon); got != WasDrained {
		t.Errorf("from one that is drained: %s", got)
	}
}

// The sum of some hashes tells which these are, for all subsets of random hashes that are tried.
func TestSummands(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		hashes := make([]uint64, random.IntN(maxUnknowns+1))
		want := make([]bool, len(hashes))
		var sum sharding.Digest
		for i := range hashes {
			hashes[i] = random.Uint64()
			if want[i] = random.IntN(2) == 0; want[i] {
				sum = sharding.Digest{Objects: sum.Objects + 1, Hashes: sum.Hashes ^ hashes[i]}
			}
		}
		if got, ok := summands(hashes, sum); !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d: of %d hashes: %v %v, want %v", round, len(hashes), got, ok, want)
		}
		sum.Hashes ^= random.Uint64()
		if got, ok := summands(hashes, sum); ok {
			t.Fatalf("round %d: of %d hashes: %v, want none", round, len(hashes), got)
		}
	}
	many := make([]uint64, maxUnknowns+1)
	all := sharding.Digest{Objects: len(many)}
	for i := range many {
		many[i] = random.Uint64()
		all.Hashes ^= many[i]
	}
	if chosen, ok := summands(many, all); !ok || !chosen[0] || !chosen[maxUnknowns] {
		t.Error("all of many are not recognized")
	}
	if _, ok := summands(many, sharding.Digest{Objects: 1, Hashes: many[0]}); ok {
		t.Error("some of too many are told apart")
	}
	if _, ok := summands([]uint64{5, 5}, sharding.Digest{Objects: 1, Hashes: 5}); ok {
		t.Error("two equal hashes are told apart")
	}
	if _, ok := summands([]uint64{4, 8}, sharding.Digest{Objects: 2, Hashes: 4}); ok {
		t.Error("the number does not fit")
	}
}

func TestLabelSelector(t *testing.T) {
	for want, group := range map[string]slot.Range{
		"x,x<16":          {First: 0, Last: 0},
		"x,x>15,x<48":     {First: 1, Last: 2},
		"x,x>4079,x<4096": {First: 255, Last: 255},
	} {
		if got := labelSelector("x", group, 256); got != want {
			t.Errorf("%v: %s, want %s", group, got, want)
		}
	}
}
