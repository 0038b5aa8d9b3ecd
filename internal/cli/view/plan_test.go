package view

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// loaded is healthy, with 2 Websites in each slot of a, and 1 in each of b. b joined last.
func loaded(t *testing.T) input {
	t.Helper()
	in := healthy(t)
	b, _ := in.table.Member("b")
	b.Joined += 60
	in.table.Put(b)
	for i, r := range in.reports {
		r.Digests = coverage.Digests{website: {}}
		for _, s := range r.Open.Slots() {
			if !in.table.IsDuty(s) {
				r.Digests[website][s] = sharding.Digest{Objects: 2 - i}
			}
		}
	}
	return in
}

// lines shows a plan in short.
func (p *Plan) lines() string {
	var b strings.Builder
	for _, m := range p.Members {
		fmt.Fprintf(&b, "%s %d-%d+%d=%d", m.ID, m.Slots, m.Loses, m.Gains, m.Then)
		if m.Objects != nil {
			fmt.Fprintf(&b, " objects %d=%d", *m.Objects, *m.ObjectsThen)
		}
		fmt.Fprintf(&b, " duties %d=%d", m.Duties, m.DutiesThen)
		if m.Ends {
			b.WriteString(" ends")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestPlanFor(t *testing.T) {
	silent := func(in *input, id string) {
		l := in.leases[id]
		renew(&l, now.Add(-time.Minute))
		in.leases[id] = l
	}
	put := func(in *input, id string, change func(*table.Member)) {
		m, _ := in.table.Member(id)
		change(&m)
		in.table.Put(m)
	}
	for name, c := range map[string]struct {
		change func(*input)
		o      PlanOptions
		want   string // members
		notes  []string
	}{
		"as it is": {nil, PlanOptions{}, "a 128-0+0=128 objects 256=256 duties 0=0\nb 128-0+0=128 objects 128=128 duties 1=1\n", nil},
		"one more": {nil, PlanOptions{Replicas: 3},
			"a 128-42+0=86 objects 256=172 duties 0=0\nb 128-43+0=85 objects 128=85 duties 1=1\n+new-1 0-0+85=85 objects 0=127 duties 0=0\n", nil},
		"one less": {nil, PlanOptions{Replicas: 1}, "a 128-0+128=256 objects 256=384 duties 0=1\nb 128-128+0=0 objects 128=0 duties 1=0 ends\n",
			[]string{"last to join: b. --without"}},
		"without a Pod": {nil, PlanOptions{Without: []string{"pod-a"}}, "a 128-128+0=0 objects 256=0 duties 0=0 ends\nb 128-0+128=256 objects 128=384 duties 1=1\n", nil},
		"one for another": {nil, PlanOptions{Replicas: 2, Without: []string{"b"}},
			"a 128-0+0=128 objects 256=256 duties 0=0\nb 128-128+0=0 objects 128=0 duties 1=0 ends\n+new-1 0-0+128=128 objects 0=128 duties 0=1\n",
			[]string{"1 new replicas replace"}},
		"weights": {func(in *input) { put(in, "b", func(m *table.Member) { m.Weight = 3 }) }, PlanOptions{},
			"a 128-64+0=64 objects 256=128 duties 0=0\nb 128-0+64=192 objects 128=256 duties 1=1\n", nil},
		"a silent member": {func(in *input) { silent(in, "b") }, PlanOptions{Replicas: 1},
			"a 128-0+128=256 objects 256=384 duties 0=1\nb 128-128+0=0 objects 128=0 duties 1=0 ends\n", []string{"b does not renew its Lease"}},
		"a leaving member": {func(in *input) { put(in, "b", func(m *table.Member) { m.Leaving = true }) }, PlanOptions{},
			"a 128-0+128=256 objects 256=384 duties 0=1\nb 128-128+0=0 objects 128=0 duties 1=0 ends\n", []string{"b is leaving"}},
		"a drained member": {func(in *input) {
			for _, id := range []string{"a", "b"} {
				put(in, id, func(m *table.Member) { m.MaxFormat = table.Format })
			}
			in.table.PutDrain("b", now.Unix(), "me", "")
		}, PlanOptions{}, "a 128-0+128=256 objects 256=384 duties 0=1\nb 128-128+0=0 objects 128=0 duties 1=0\n", []string{"b is drained"}},
		"moves are paused": {func(in *input) { in.table.Pause = table.Pause{Since: now.Unix()} }, PlanOptions{},
			"a 128-0+0=128 objects 256=256 duties 0=0\nb 128-0+0=128 objects 128=128 duties 1=1\n", []string{"moves are paused"}},
		"Leases that cannot be read": {func(in *input) {
			in.leases, in.noLeases, in.unknown = nil, true, []Unknown{{What: "Leases", Error: "may not list"}}
		}, PlanOptions{}, "a 128-0+0=128 objects 256=256 duties 0=0\nb 128-0+0=128 objects 128=128 duties 1=1\n",
			[]string{"dead members count as live: may not list"}},
		"a rollout": {func(in *input) { put(in, "b", func(m *table.Member) { m.Build, m.Joined = "v2", now.Unix()-5 }) }, PlanOptions{},
			"a 128-0+0=128 objects 256=256 duties 0=0\nb 128-0+0=128 objects 128=128 duties 1=1\n", []string{"a rollout is in progress"}},
		"probation": {func(in *input) {
			put(in, "b", func(m *table.Member) { m.Joined = now.Unix() - 5 })
			in.table.Expels = []table.Expel{{Pod: "pod-b", At: now.Unix() - 9}, {Pod: "pod-b", At: now.Unix() - 30}}
			in.table.Runs = []table.Run{{Slots: slot.Range{First: 0, Last: 255}, Owner: "a", Epoch: 41}, {Slots: slot.Range{First: 256, Last: 256}, Owner: "a", Epoch: 43}}
		}, PlanOptions{}, "a 256-0+0=256 objects 384=384 duties 1=1\nb 0-0+0=0 objects 0=0 duties 0=0\n", []string{"b is on probation"}},
		"a move under way counts as done": {func(in *input) { in.table.Runs[0].Next = "b" }, PlanOptions{Replicas: 1, Without: []string{"a"}},
			"a 0-0+0=0 objects 0=0 duties 0=0 ends\nb 256-0+0=256 objects 384=384 duties 1=1\n", nil},
		"no report": {func(in *input) { in.reports = in.reports[:1] }, PlanOptions{}, "a 128-0+0=128 duties 0=0\nb 128-0+0=128 duties 1=1\n",
			[]string{"not all members report"}},
		"a report in folds": {func(in *input) {
			in.reports[1].Fold = 128
			in.reports[1].Digests[website] = map[slot.Slot]sharding.Digest{128: {Objects: 128}}
		}, PlanOptions{Replicas: 3}, "a 128-42+0=86 objects 256=172 duties 0=0\nb 128-43+0=85 objects 128=85 duties 1=1\n+new-1 0-0+85=85 objects 0=127 duties 0=0\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := loaded(t)
			if c.change != nil {
				c.change(&in)
			}
			p, err := new(memory).look(in).PlanFor(c.o)
			require.NoError(t, err)
			if got := p.lines(); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
			if text := strings.Join(p.Notes, "\n"); len(p.Notes) != len(c.notes) || len(c.notes) > 0 && !strings.Contains(text, c.notes[0]) {
				t.Errorf("notes %q, want %q", p.Notes, c.notes)
			}
			moved := 0
			for _, m := range p.Moves {
				if m.Duty == "" {
					moved += m.Last - m.First + 1
				}
			}
			if moved != p.Slots {
				t.Errorf("%d slots move in runs, %d in all", moved, p.Slots)
			}
		})
	}
}

// A plan between two tables counts moves that were under way as done before.
func TestPlanBetween(t *testing.T) {
	in := loaded(t)
	before := in.table
	before.Update(slot.SetOf(slot.Range{First: 128, Last: 130}), func(r *table.Run) { r.Next = "a" })
	after := before.Clone()
	moved := slot.SetOf(slot.Range{First: 0, Last: 9})
	moved.Add(20)
	moved.Add(256)
	after.Update(moved, func(r *table.Run) { r.Next = "b" })
	p := new(memory).look(in).PlanBetween(before, after)
	if got, want := p.lines(), "a 131-11+0=120 objects 259=237 duties 0=0\nb 125-0+11=136 objects 125=147 duties 1=1\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if p.Slots != 11 || p.Duties != 0 || len(p.Moves) != 2 || p.Now != 2 || p.Replicas != 2 {
		t.Errorf("%+v", p)
	}
}

func TestPlanForNonsense(t *testing.T) {
	for want, o := range map[string]PlanOptions{
		"must be from 1 to 4096":          {Replicas: 4097},
		"-1 replicas":                     {Replicas: -1},
		"no live member or Pod nobody":    {Without: []string{"nobody"}},
		"no replica would be left":        {Without: []string{"a", "b"}},
		"no live member or Pod b":         {Without: []string{"a", "b "}},
		"cannot plan that: 5000 replicas": {Replicas: 5000},
	} {
		if _, err := build(loaded(t)).PlanFor(o); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	in := loaded(t)
	for _, id := range []string{"a", "b"} {
		m, _ := in.table.Member(id)
		m.MaxFormat = table.Format
		in.table.Put(m)
		in.table.PutDrain(id, now.Unix(), "", "")
	}
	if _, err := new(memory).look(in).PlanFor(PlanOptions{}); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), "eligible for slots") {
		t.Errorf("all are drained: %v", err)
	}
}

func TestHistory(t *testing.T) {
	in := healthy(t)
	at := func(ago time.Duration) time.Time { return now.Add(-ago) }
	in.table.Expels = []table.Expel{{Pod: "pod-c", At: at(10 * time.Minute).Unix()}}
	in.reports[0].Handovers = []coverage.Handover{
		{Duty: "report", Count: 1, From: "c-1", Cause: table.CauseExpelled, Epoch: 43, Ended: at(9 * time.Minute), Activate: 2600 * time.Millisecond},
		{Slots: slot.SetOf(slot.Range{First: 0, Last: 3}), Count: 4, From: "b", Cause: table.CauseHanded, Epoch: 41, Ended: at(20 * time.Minute),
			Warm: 200 * time.Millisecond, Drain: 50 * time.Millisecond},
		{Slots: slot.SetOf(slot.Range{First: 9, Last: 9}), Count: 1, Cause: table.CauseAssigned, Epoch: 40, Ended: at(58 * time.Minute)},
		{Slots: slot.SetOf(slot.Range{First: 0, Last: 3}), Count: 99, Cause: table.CauseAssigned, Epoch: 40, Ended: at(59 * time.Minute)},
	}
	in.table.Pause = table.Pause{Since: at(time.Minute).Unix(), By: "ann", Reason: "bad release"}
	in.table.Drains = []table.Drain{{ID: "b", Since: at(2 * time.Minute).Unix()}}
	in.warnings = []Warning{{At: at(3 * time.Minute), Member: "pod-a", Reason: "Lapsed", Message: "x\n y"}}
	in.notices = []Warning{{At: at(4 * time.Minute), Member: "pod-a", Reason: "Resumed", Message: "z"}}
	h := new(memory).look(in)
	var got []string
	for i, e := range h.History {
		got = append(got, fmt.Sprintf("%s %s %s: %s", now.Sub(e.At), e.What, e.Member, e.Text))
		if i > 0 && e.At.After(h.History[i-1].At) {
			t.Errorf("%v is after %v", e.At, h.History[i-1].At)
		}
	}
	want := []string{
		"1m0s pause : moves were paused by ann (bad release), and still are",
		"2m0s drain b: was drained, and still is",
		"3m0s warning pod-a: Lapsed: x y",
		"4m0s notice pod-a: Resumed: z",
		"9m0s handover a: got duty report: c-1 was expelled: it did not renew its Lease in time, its container was restarted, or its Lease was deleted (activate 2.6s)",
		"10m0s expelled pod-c: did not renew its Lease in time, its container was restarted, or its Lease was deleted; others got its slots",
		"20m0s handover a: got slots 0-3: b handed it over to rebalance (warm 200ms, drain 50ms)",
		"58m0s handover a: got slot 9: it had no owner, as at the start of a rota",
		"59m0s handover a: got 99 slots: it had no owner, as at the start of a rota",
		"1h0m0s joined a: joined, build v1",
		"1h0m0s joined b: joined, build v1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	reach := strings.Join(h.HistoryReach, "\n")
	for _, word := range []string{"a reports 4, back to " + at(59*time.Minute).Local().Format(time.DateTime), "b reports none", "the last 10 minutes", "the last 60 minutes"} {
		if !strings.Contains(reach, word) {
			t.Errorf("no %q in\n%s", word, reach)
		}
	}
	// What events tell, too, is told once.
	in.notices = []Warning{
		{At: at(time.Minute), Reason: "MovesPaused", Message: "x"}, {At: at(2 * time.Minute), Reason: "MemberDrained", Message: "member b gives"},
		{At: at(4 * time.Minute), Reason: "Resumed"},
	}
	in.warnings = []Warning{{At: at(10 * time.Minute), Reason: "Expelled", Message: "member pod-c-17 did not"}, {At: at(3 * time.Minute)}}
	again := new(memory).look(in)
	if len(again.History) != len(h.History) || slices.ContainsFunc(again.History, func(e Event) bool {
		return e.What == HappenedPause || e.What == HappenedDrain || e.What == HappenedExpel
	}) {
		t.Errorf("%d events, %d before: %+v", len(again.History), len(h.History), again.History)
	}
	in.reports = in.reports[:1]
	if reach := strings.Join(new(memory).look(in).HistoryReach, "\n"); !strings.Contains(reach, "b does not report") {
		t.Errorf("no word of the member without a report:\n%s", reach)
	}
}
