package view

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// A shadow says what its members would have. That nothing of it works is no problem, however long it lasts.
func TestShadow(t *testing.T) {
	website := schema.GroupKind{Group: "web.example.com", Kind: "Website"}
	in := healthy(t)
	in.rota.Name = "web-shadow"
	for i, r := range in.reports {
		r.Open, r.Waits = slot.Set{}, "this member is a shadow, which works on nothing"
		r.Would = []coverage.Would{{Kind: website, Objects: 30 - 20*i, Unlabelled: 10, Changed: 6, Over: 2 * time.Minute}}
	}
	var m memory
	m.look(in)
	in.at = now.Add(time.Hour)
	for id, l := range in.leases {
		renew(&l, in.at.Add(-time.Second))
		in.leases[id] = l
	}
	in.listed = listedAt(in.at)
	r := m.look(in)
	rate := 6.0
	want := &Shadow{Of: "web", Kinds: []ShadowKind{{Kind: "Website.web.example.com", Objects: 40, Labels: 20, Changes: &rate,
		Members: []ShadowShare{{"a", 30, 0.75}, {"b", 10, 0.25}}}}}
	require.Equal(t, "the shadow", want, r.Shadow)
	if len(r.Problems) > 0 {
		t.Errorf("problems: %v", r.Problems)
	}
	for _, m := range r.Members {
		if m.State != Shadowing {
			t.Errorf("%s is %s", m.ID, m.State)
		}
	}
	for _, run := range r.Runs {
		if run.Closed {
			t.Errorf("slots %d-%d count as closed", run.First, run.Last)
		}
	}
	in.reports[1].Would[0].Over = 0 // it has listed once
	if r := m.look(in); r.Shadow.Kinds[0].Changes != nil {
		t.Errorf("%v changes a minute, and one member does not know yet", *r.Shadow.Kinds[0].Changes)
	}
	in.rota.Name = "web"
	if r := m.look(in); r.Shadow != nil {
		t.Error("a rota of another name is taken for a shadow")
	}
}

// Whoever asks who works on an object hears who would, and never that somebody does.
func TestWhoOfAShadow(t *testing.T) {
	q := sites(t)
	q.in.rota.Name = "web-shadow"
	for _, r := range q.in.reports {
		r.Open, r.Waits = slot.Set{}, "this member is a shadow, which works on nothing"
	}
	w := q.ask()
	if w.Works != WorksNo || w.Member != "b" || w.Slot == nil || !strings.HasPrefix(w.Answer, "SHADOW: b would work on ") ||
		len(w.Problems) > 0 {
		t.Errorf("%+v", w)
	}
	q.in.table.Runs[1].Owner, q.in.table.Runs[1].Epoch = "", 0
	if w := q.ask(); w.Works != WorksNo || w.Member != "" || !strings.Contains(w.Answer, "SHADOW: no member would work on ") {
		t.Errorf("without an owner: %+v", w)
	}
}
