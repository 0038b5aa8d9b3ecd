package view

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// maxReplicas is the largest supported number of replicas.
const maxReplicas = slot.MaxCount

// ErrPlan is returned by PlanFor if its options make no sense.
var ErrPlan = errors.New("cannot plan that")

// PlanOptions configures PlanFor.
type PlanOptions struct {
	// Replicas is the number of replicas, from 1 to 4,096. Zero means the current number, minus Without. Only replicas
	// that renew their Leases and are not leaving count.
	Replicas int
	// Without lists members or Pods to remove. If more must be removed, the last to join are.
	Without []string
}

// Plan compares the members' shares now and after the plan. Its JSON is the output of `rota rebalance -o json`: fields
// are added, but never renamed or removed.
type Plan struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Epoch     uint64 `json:"epoch"`
	// Now and Replicas are the numbers of replicas before and after.
	Now      int             `json:"now"`
	Replicas int             `json:"replicas"`
	Members  []PlannedMember `json:"members"`
	// Moves are the runs of slots and duties that would move, in order.
	Moves []PlannedMove `json:"moves"`
	// DryRun is true if nothing was changed.
	DryRun bool `json:"dryRun"`
	// Slots and Objects count what would move. Objects is an estimate from the members' reports, or nil if a member that
	// owns slots does not report.
	Slots   int      `json:"slotsMoved"`
	Objects *int     `json:"objectsMoved,omitempty"`
	Duties  int      `json:"dutiesMoved"`
	Notes   []string `json:"notes"`
}

// PlannedMember is a member before and after.
type PlannedMember struct {
	ID string `json:"id"`
	// New is true for a replica that does not exist yet; its ID is made up. Ends is true if the member would be removed.
	New    bool `json:"new,omitempty"`
	Ends   bool `json:"ends,omitempty"`
	Weight int  `json:"weight"`
	// Slots is the number of slots now, as if moves under way were done, followed by the slots that it would gain, lose,
	// and end up with.
	Slots int `json:"slots"`
	Gains int `json:"gains"`
	Loses int `json:"loses"`
	Then  int `json:"slotsThen"`
	// Objects are estimates before and after, or nil if unknown.
	Objects     *int `json:"objects,omitempty"`
	ObjectsThen *int `json:"objectsThen,omitempty"`
	// Duties count duties before and after, without the rota's internal ones.
	Duties     int `json:"duties"`
	DutiesThen int `json:"dutiesThen"`
}

// PlannedMove is a range of slots, or a duty, that would move.
type PlannedMove struct {
	First int    `json:"first"`
	Last  int    `json:"last"`
	Duty  string `json:"duty,omitempty"`
	// From and To are IDs, or empty for no member.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

const drainedNote = "%s is drained and gets no slots until `rota undrain`"

// planning is the state of PlanFor.
type planning struct {
	r       *Rota
	members []plan.Member
	// entries are the members as in the table, existing or not. order lists their IDs, new ones last.
	entries map[string]table.Member
	order   []string
	ends    map[string]bool
	fresh   map[string]bool
	notes   []string
}

// PlanFor plans for another number of replicas with the rota's own planner (package plan). All replicas come and go at
// once. The error wraps ErrPlan. It is pure.
func (r *Rota) PlanFor(o PlanOptions) (*Plan, error) {
	p := &planning{r: r, entries: map[string]table.Member{}, ends: map[string]bool{}, fresh: map[string]bool{}}
	now, err := p.settle(o)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(p.members, func(m plan.Member) bool { return m.Receives }) {
		return nil, fmt.Errorf("%w: no member eligible for slots would be left", ErrPlan)
	}
	before, moving := ownersOf(r.Table, p.ends)
	total := int(r.Table.Slots)
	in := plan.Input{Owners: before[:total], Moving: moving, Members: p.members}
	after := append(plan.Assign(in), p.duties(before, moving)...)
	plan := p.result(now, before, after)
	plan.DryRun = true
	return plan, nil
}

// PlanBetween describes the moves between two tables with the same members. It estimates objects from r's reports.
func (r *Rota) PlanBetween(before, after *table.Table) *Plan {
	seen := *r
	seen.Table = before
	p := &planning{r: &seen, entries: map[string]table.Member{}, ends: map[string]bool{}}
	for _, m := range before.Members {
		p.entries[m.ID], p.order = m, append(p.order, m.ID)
		if before.Drained(m.ID) {
			p.note(drainedNote, m.ID)
		}
	}
	for _, m := range r.Members {
		if _, there := p.entries[m.ID]; there && (m.State == Silent || m.State == Leaving) {
			p.ends[m.ID] = true
		}
	}
	from, _ := ownersOf(before, nil)
	to, _ := ownersOf(after, nil)
	plan := p.result(len(before.Members)-len(p.ends), from, to)
	plan.Epoch = after.Epoch
	return plan
}

func (p *planning) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// settle decides which members stay, and returns how many there are now.
func (p *planning) settle(o PlanOptions) (now int, err error) {
	r := p.r
	var live []Member
	if reason, unread := r.Unread("Leases"); unread {
		p.note("the Leases could not be read, so dead members count as live: %s", reason)
	}
	for _, m := range r.Members {
		switch m.State {
		case Silent:
			p.note("%s does not renew its Lease: it counts as gone", m.ID)
		case Leaving:
			p.note("%s is leaving: it counts as gone", m.ID)
		default:
			live = append(live, m)
			continue
		}
		p.ends[m.ID] = true
	}
	for _, name := range o.Without {
		i := slices.IndexFunc(live, func(m Member) bool { return m.ID == name || m.Pod == name })
		if i < 0 {
			return 0, fmt.Errorf("%w: there is no live member or Pod %s", ErrPlan, name)
		}
		p.ends[live[i].ID] = true
	}
	staying := slices.DeleteFunc(slices.Clone(live), func(m Member) bool { return p.ends[m.ID] })
	want := cmp.Or(o.Replicas, len(staying))
	switch {
	case o.Replicas < 0 || o.Replicas > maxReplicas:
		return 0, fmt.Errorf("%w: %d replicas: must be from 1 to %d", ErrPlan, o.Replicas, maxReplicas)
	case want == 0:
		return 0, fmt.Errorf("%w: no replica would be left", ErrPlan)
	case want > len(staying) && len(o.Without) > 0:
		p.note("%d new replicas replace the ones that end", want-len(staying))
	}
	byAge := slices.SortedFunc(slices.Values(staying), func(a, b Member) int {
		return cmp.Or(a.Joined.Compare(b.Joined), cmp.Compare(a.ID, b.ID))
	})
	if n := len(byAge) - want; n > 0 {
		var last []string
		for _, m := range byAge[want:] {
			p.ends[m.ID] = true
			last = append(last, m.ID)
		}
		p.note("Kubernetes chooses the Pods to end. This plan assumes the last to join: %s. --without chooses others",
			strings.Join(last, ", "))
	}
	p.add(live)
	p.addNew(byAge, want-len(byAge))
	p.circumstances()
	return len(live), nil
}

// add adds the table's members.
func (p *planning) add(live []Member) {
	for _, m := range p.r.Members {
		entry, _ := p.r.Table.Member(m.ID)
		p.entries[m.ID], p.order = entry, append(p.order, m.ID)
		gone := !slices.ContainsFunc(live, func(l Member) bool { return l.ID == m.ID })
		if gone && m.State == Silent {
			continue // the planner omits members that it expels
		}
		planned := plan.Member{ID: m.ID, Weight: m.Weight, Receives: true}
		switch {
		case p.ends[m.ID]:
			planned.Receives, planned.Leaves = false, true
		case p.r.Table.Drained(m.ID):
			planned.Receives, planned.Leaves = false, true
			p.note(drainedNote, m.ID)
		case onProbation(p.r.Table, m, p.r.At):
			planned.Receives = false
			p.note("%s is on probation and gets no slots for up to 5 minutes", m.ID)
		}
		p.members = append(p.members, planned)
	}
}

// addNew adds new replicas, modeled on the last member to join.
func (p *planning) addNew(byAge []Member, n int) {
	like := table.Member{Weight: 1}
	if len(byAge) > 0 {
		like, _ = p.r.Table.Member(byAge[len(byAge)-1].ID)
	}
	for i := range max(n, 0) {
		// IDs of real members never begin with a plus sign, but with a Pod's name.
		id := "+new-" + strconv.Itoa(i+1)
		like.ID = id
		p.entries[id], p.fresh[id], p.order = like, true, append(p.order, id)
		p.members = append(p.members, plan.Member{ID: id, Weight: like.Weight, Receives: true})
	}
}

// circumstances adds notes about conditions that keep the members from carrying out the plan now.
func (p *planning) circumstances() {
	t := p.r.Table
	if t.Paused() {
		p.note("moves are paused: until `rota resume` only slots of members that end get new owners")
	}
	builds, last := map[string]bool{}, int64(0)
	for _, m := range t.Members {
		builds[m.Build] = true
		last = max(last, m.Joined)
	}
	if len(builds) > 1 && p.r.At.Unix()-last < int64(coverage.RolloutQuiet.Seconds()) {
		p.note("a rollout is in progress: until it has ended, members move less than this")
	}
	if total := len(p.entries) - len(p.ends); total > int(t.Slots) {
		p.note("there are %d slots, so %d replicas would have none", t.Slots, total-int(t.Slots))
	}
}

// ownersOf returns the owners of all slots once current moves are done, except moves to members that end.
func ownersOf(t *table.Table, ends map[string]bool) (owners []string, moving slot.Set) {
	owners = make([]string, t.Total())
	for _, run := range t.Runs {
		for s := run.Slots.First; ; s++ {
			owners[s] = run.Owner
			if run.Next != "" && !ends[run.Next] {
				owners[s] = run.Next
				moving.Add(s)
			}
			if s == run.Slots.Last {
				break
			}
		}
	}
	return owners, moving
}

// duties returns the owners of the duties after the plan. Users' duties and internal duties are spread separately.
func (p *planning) duties(before []string, moving slot.Set) []string {
	t := p.r.Table
	after := slices.Clone(before[t.Slots:])
	can := t.DutiesOf()
	for _, own := range []bool{false, true} {
		var slots []slot.Slot
		in := plan.DutyInput{Members: p.members}
		for i, name := range t.Duties {
			if s := slot.Slot(int(t.Slots) + i); name != "" && table.OwnDuty(name) == own { // see slot.MaxDuties
				slots = append(slots, s)
				in.Owners, in.Moving = append(in.Owners, before[s]), append(in.Moving, moving.Has(s))
			}
		}
		in.Can = func(member, duty int) bool {
			set := can(p.entries[p.members[member].ID])
			return set.Has(slots[duty])
		}
		for i, owner := range plan.AssignDuties(in) {
			after[int(slots[i])-int(t.Slots)] = owner
		}
	}
	return after
}

func (p *planning) result(now int, before, after []string) *Plan {
	t := p.r.Table
	out := &Plan{
		Namespace: p.r.Namespace, Name: p.r.Name, Epoch: t.Epoch, Now: now, Moves: []PlannedMove{}, Notes: p.notes,
	}
	loads, known := p.r.loads(before)
	members := map[string]*PlannedMember{}
	for id, entry := range p.entries {
		m := &PlannedMember{ID: id, New: p.fresh[id], Ends: p.ends[id], Weight: entry.Weight}
		members[id] = m
		if !m.Ends {
			out.Replicas++
		}
	}
	objects, objectsThen, moved := map[string]float64{}, map[string]float64{}, 0.0
	count := func(id string, f func(*PlannedMember)) {
		if m := members[id]; m != nil {
			f(m)
		}
	}
	for i, from := range before {
		s, to := slot.Slot(i), after[i] // see slot.MaxCount
		if t.IsDuty(s) {
			if name := t.Duty(s); name != "" && !table.OwnDuty(name) {
				count(from, func(m *PlannedMember) { m.Duties++ })
				count(to, func(m *PlannedMember) { m.DutiesThen++ })
				out.Duties += map[bool]int{true: 1}[from != to]
			}
		} else {
			count(from, func(m *PlannedMember) { m.Slots++ })
			count(to, func(m *PlannedMember) { m.Then++ })
			objects[from] += loads[i]
			objectsThen[to] += loads[i]
			if from != to {
				out.Slots++
				moved += loads[i]
				count(from, func(m *PlannedMember) { m.Loses++ })
				count(to, func(m *PlannedMember) { m.Gains++ })
			}
		}
		if from != to {
			out.addMove(i, t.Duty(s), from, to)
		}
	}
	for _, id := range p.order {
		m := members[id]
		if known {
			m.Objects, m.ObjectsThen = ptr.To(round(objects[id])), ptr.To(round(objectsThen[id]))
		}
		out.Members = append(out.Members, *m)
	}
	if known {
		out.Objects = ptr.To(round(moved))
	} else {
		out.Notes = append(out.Notes, "not all members report their objects, so object counts are unknown")
	}
	if out.Notes == nil {
		out.Notes = []string{}
	}
	return out
}

func (p *Plan) addMove(n int, duty, from, to string) {
	if i := len(p.Moves) - 1; i >= 0 && duty == "" {
		if m := &p.Moves[i]; m.Duty == "" && m.Last == n-1 && m.From == from && m.To == to {
			m.Last = n
			return
		}
	}
	p.Moves = append(p.Moves, PlannedMove{First: n, Last: n, Duty: duty, From: from, To: to})
}

func round(f float64) int { return int(math.Round(f)) }

// loads estimates the number of objects in each slot from the reports of the members that have it open. known is false
// if an owner does not report.
func (r *Rota) loads(owners []string) (loads []float64, known bool) {
	loads, known = make([]float64, len(owners)), true
	for _, m := range r.Members {
		report := r.Reports[m.ID]
		if report == nil {
			known = known && m.Owned == 0
			continue
		}
		open := report.Open.Intersect(r.Table.Slots.All())
		if r.Shadow != nil { // its report covers the slots that it would have open
			open = r.Table.Owned(m.ID).Intersect(r.Table.Slots.All())
		}
		in := map[slot.Slot]int{} // open slots that share a figure
		for _, s := range open.Slots() {
			in[groupOf(s, report.Fold).First]++
		}
		for _, digests := range report.Digests {
			for _, s := range open.Slots() {
				first := groupOf(s, report.Fold).First
				loads[s] += float64(digests[first].Objects) / float64(in[first])
			}
		}
	}
	return loads, known
}
