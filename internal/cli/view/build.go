package view

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
)

// input is the data of one Read.
type input struct {
	rota  types.NamespacedName
	at    time.Time
	table *table.Table
	uid   string // of the ConfigMap
	// seenEpoch is the highest epoch in the Leases, which were read before the table. Later Leases may have a newer one.
	seenEpoch uint64
	leases    map[string]coordinationv1.Lease
	// listed is when the Leases were listed. ages are lower bounds on their ages at that time.
	listed  listing
	ages    map[string]time.Duration
	reports []*coverage.Report
	// old are outdated reports; stale maps their members to their ages.
	old   []*coverage.Report
	stale map[string]time.Duration
	// noLeases and noReports are true if not all could be read.
	noLeases, noReports bool
	warnings, notices   []Warning
	fence               string
	fenceState          fence.State
	unknown             []Unknown
	// gone are sharded kinds that the API server does not serve.
	gone []schema.GroupKind
}

// maxHandovers limits the handovers in a Rota.
const maxHandovers = 50

// build assembles a Rota from one read. It makes no decision that needs earlier reads.
func build(in input) *Rota {
	t := in.table
	r := &Rota{
		Namespace: in.rota.Namespace, Name: in.rota.Name, At: in.at, Epoch: t.Epoch, Slots: t.Slots, Key: t.Key.String(),
		ShardedKinds: []string{}, Members: []Member{}, Runs: []Run{}, Duties: []Duty{}, Moves: []Move{},
		Problems:  []Problem{},
		Handovers: []Handover{}, Expels: []Expel{},
		Differences: []string{}, Warnings: in.warnings, Notices: in.notices, Fence: in.fence,
		Unknown:    in.unknown,
		FenceState: in.fenceState,
		Table:      t, Reports: map[string]*coverage.Report{}, Stale: in.stale,
	}
	if t.Paused() {
		r.Pause = &Pause{Since: time.Unix(t.Pause.Since, 0), By: t.Pause.By, Reason: t.Pause.Reason}
	}
	r.Canary, r.Pins = canaryOf(t, in.reports), pinsOf(t)
	for _, e := range t.Expels {
		r.Expels = append(r.Expels, Expel{Pod: e.Pod, At: time.Unix(e.At, 0)})
	}
	if r.Warnings == nil {
		r.Warnings = []Warning{}
	}
	if r.Unknown == nil {
		r.Unknown = []Unknown{}
	}
	for _, report := range slices.Concat(in.reports, in.old) {
		if _, ok := t.Member(report.Member); ok {
			r.addHandovers(report)
		}
	}
	for _, report := range in.reports {
		if _, ok := t.Member(report.Member); ok {
			r.Reports[report.Member] = report
		}
	}
	own, owned := r.kindsBy()
	for _, kind := range slices.Concat(own, owned) {
		r.ShardedKinds = append(r.ShardedKinds, kind.String())
	}
	if names.IsShadow(r.Name) {
		r.Shadow = shadowOf(strings.TrimSuffix(r.Name, names.ShadowSuffix), r.Reports)
	}
	slices.SortStableFunc(r.Handovers, func(a, b Handover) int { return b.Ended.Compare(a.Ended) })
	r.Handovers = r.Handovers[:min(len(r.Handovers), maxHandovers)]
	for _, run := range t.Runs {
		if !t.IsDuty(run.Slots.First) {
			r.Runs = append(r.Runs, r.run(run))
		}
		if m, ok := moveOf(t, run); ok {
			r.Moves = append(r.Moves, m)
		}
	}
	r.addDuties()
	counts, duties := t.Counts(), map[string]int{}
	for _, d := range r.Duties {
		if !table.OwnDuty(d.Name) {
			duties[d.Owner]++
		}
	}
	for _, m := range t.Members {
		r.Members = append(r.Members, r.member(m, in, counts[m.ID], duties[m.ID]))
	}
	r.Balance = r.balance()
	r.Hottest, r.HottestObjects = r.hottest(), r.hottestObjects()
	r.Worst = r.worst(in.now())
	for _, d := range coverage.DifferencesIn(t, in.reports) {
		if d.Clash == "" { // a clash is a problem
			r.Differences = append(r.Differences, d.String())
		}
	}
	return r
}

func (r *Rota) addHandovers(report *coverage.Report) {
	for _, h := range report.Handovers {
		r.Handovers = append(r.Handovers, handoverOf(report.Member, h))
	}
}

func handoverOf(to string, h coverage.Handover) Handover {
	slots := ""
	if h.Duty == "" {
		slots = h.Slots.String()
	}
	return Handover{
		Slots: slots, Count: h.Count, Duty: h.Duty, From: h.From, To: to, Cause: h.Cause.String(), Epoch: h.Epoch,
		Ended: h.Ended, Warm: h.Warm.Seconds(), Drain: h.Drain.Seconds(), Activate: h.Activate.Seconds(),
	}
}

func (r *Rota) run(run table.Run) Run {
	out := Run{
		First: int(run.Slots.First), Last: int(run.Slots.Last), Owner: run.Owner, Next: run.Next, Ready: run.Ready,
		Activating: run.Unsettled, Since: run.Epoch, Cause: r.causeOf(run),
	}
	if report := r.Reports[run.Owner]; report != nil && r.Shadow == nil {
		closed := slot.SetOf(run.Slots).Minus(report.Open)
		out.Closed = !closed.Empty()
	}
	return out
}

// causeOf returns the cause of the owner's last handover: from the table while the slots are activating, later from the
// owner's report.
func (r *Rota) causeOf(run table.Run) string {
	if note, ok := r.Table.Notes[run.Epoch]; ok && run.Owner != "" {
		return note.Cause.String()
	}
	if report := r.Reports[run.Owner]; report != nil {
		for _, h := range report.Handovers {
			if h.Epoch == run.Epoch && h.Duty == r.Table.Duty(run.Slots.First) {
				return h.Cause.String()
			}
		}
	}
	return ""
}

func moveOf(t *table.Table, run table.Run) (Move, bool) {
	m := Move{First: int(run.Slots.First), Last: int(run.Slots.Last), Duty: t.Duty(run.Slots.First)}
	switch {
	case t.IsDuty(run.Slots.First) && m.Duty == "":
		return m, false
	case run.Next != "":
		m.From, m.To, m.Phase = run.Owner, run.Next, "warm"
		if run.Ready {
			m.Phase = "drain"
		}
	case run.Unsettled:
		m.To, m.Phase = run.Owner, "activate"
	default:
		return m, false
	}
	return m, true
}

func (r *Rota) addDuties() {
	t := r.Table
	for _, name := range slices.Sorted(slices.Values(t.Duties)) {
		s, ok := t.DutySlot(name)
		if !ok {
			continue
		}
		run := t.At(s)
		d := Duty{Name: name, Owner: run.Owner, Next: run.Next, State: "Working"}
		switch {
		case run.Next != "":
			d.State = "Moving"
		case run.Owner == "":
			d.State = "Nobody"
		case run.Unsettled:
			d.State = "Activating"
		}
		r.Duties = append(r.Duties, d)
	}
}

func (r *Rota) member(m table.Member, in input, owned, duties int) Member {
	t := in.table
	out := Member{
		ID: m.ID, Pod: m.Pod, Build: m.Build, Joined: time.Unix(m.Joined, 0), Weight: m.Weight, Owned: owned,
		Duties: duties, State: Working,
	}
	for _, d := range t.Drains {
		if d.ID == m.ID {
			out.Drain = &Drain{Since: time.Unix(d.Since, 0), By: d.By, Reason: d.Reason}
		}
	}
	coming := t.Coming(m.ID).Intersect(t.Slots.All())
	out.Coming = coming.Len()
	activating := false
	for _, run := range t.Runs {
		if run.Owner != m.ID || t.IsDuty(run.Slots.First) {
			continue
		}
		if run.Next != "" {
			out.Going += run.Slots.Len()
		}
		activating = activating || run.Unsettled
	}
	if d := r.Reports[m.ID]; d != nil {
		open := d.Open.Intersect(t.Slots.All())
		out.Open, out.Objects = ptr.To(open.Len()), ptr.To(objects(d))
		var oldest time.Duration
		for _, age := range d.Waiting {
			oldest = max(oldest, age)
		}
		if oldest > 0 {
			out.OldestWaiting = ptr.To(oldest.Seconds())
		}
		if workers, ok := d.Load(); ok {
			out.Load = ptr.To(workers)
		}
	}
	if l, ok := in.leases[m.ID]; ok {
		out.Gate = names.GateOpen
		if l.Annotations[names.AnnotationGate] == names.GateShut {
			out.Gate = names.GateShut
		}
		if m := store.ReadMemory(&l); m.Limit > 0 {
			out.Memory = ptr.To(Memory(m))
		}
		out.Lease = float64(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))
		if l.Spec.RenewTime != nil {
			out.Renewed = ptr.To(l.Spec.RenewTime.Time)
			if at, ok := written(l); ok {
				out.ClockAhead = ptr.To(l.Spec.RenewTime.Sub(at).Seconds())
			}
		}
		if age, ok := in.ages[m.ID]; ok {
			out.Left = ptr.To(out.Lease - age.Seconds())
		}
	}
	switch {
	case out.Left != nil && *out.Left < 0:
		out.State = Silent
	case m.Leaving:
		out.State = Leaving
	case out.Gate == names.GateShut && owned > 0, owned > 0 && out.pastDeadline(in.deadline(m.ID)):
		out.State = Stopped
	case owned == 0 && out.Drain != nil:
		out.State = Drained
	case out.Drain != nil:
		out.State = Draining
	case r.Shadow != nil:
		out.State = Shadowing
	case owned == 0, r.Reports[m.ID] != nil && r.Reports[m.ID].Waits != "":
		out.State = Waiting
	case activating:
		out.State = Activating
	}
	return out
}

// deadline returns a member's RenewDeadline from its last report, or 0 if unknown.
func (in input) deadline(id string) time.Duration {
	for _, report := range slices.Concat(in.reports, in.old) {
		if report.Member == id {
			d, _ := time.ParseDuration(report.Setup[coverage.SettingDeadline])
			return d
		}
	}
	return 0
}

// pastDeadline reports whether a member has not renewed its Lease for longer than its RenewDeadline. Then it has shut
// its gate, although no Lease can show it.
func (m Member) pastDeadline(deadline time.Duration) bool {
	return m.Left != nil && deadline > 0 && m.Lease-*m.Left > deadline.Seconds()
}

// objects counts the sharded objects in a member's report.
func objects(report *coverage.Report) int {
	n := 0
	for _, digests := range report.Digests {
		for _, d := range digests {
			n += d.Objects
		}
	}
	return n
}

// Working returns the number of working members, and the number of slots that they work on.
func (r *Rota) Working() (members, slots int) {
	works := map[string]bool{}
	for _, m := range r.Members {
		if slices.Contains([]State{Working, Activating, Leaving, Draining}, m.State) {
			members++
			works[m.ID] = true
		}
	}
	for _, run := range r.Runs {
		if works[run.Owner] && !run.Activating && !run.Closed {
			slots += run.Last - run.First + 1
		}
	}
	return members, slots
}

// SlotsText formats runs of slots, such as "0-15 17".
func SlotsText(runs ...Run) string {
	var set slot.Set
	for _, r := range runs {
		set.AddRange(slot.Range{First: slot.Slot(r.First), Last: slot.Slot(r.Last)})
	}
	return SetText(set)
}

// SetText formats slots, such as "0-15 17".
func SetText(set slot.Set) string {
	var words []string
	for _, r := range set.Ranges() {
		words = append(words, r.String())
	}
	return strings.Join(words, " ")
}
