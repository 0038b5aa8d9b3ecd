package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// The kinds of problems. docs/troubleshooting.md has a section for each.
const (
	SlotUnowned   = "SlotUnowned"
	SlotClosed    = "SlotClosed"
	DutyUnowned   = "DutyUnowned"
	MemberSilent  = "MemberSilent"
	MemberStopped = "MemberStopped"
	LeaseMissing  = "LeaseMissing"
	OldCopy       = "OldCopy"
	MoveStuck     = "MoveStuck"
	ReportMissing = "ReportMissing"
	Probation     = "Probation"
	KeyWaiting    = "KeyWaiting"
	SetupClash    = "SetupClash"
	NotElected    = "NotElected"
	KindNotServed = "KindNotServed"
	KindRefused   = "KindRefused"
	LabelsRefused = "LabelsRefused"
	SlotHeldBack  = "SlotHeldBack"
	KeyHangs      = "KeyHangs"
	KeyFails      = "KeyFails"
	KeyKills      = "KeyKills"
	PinUnmet      = "PinUnmet"
	CanaryWaits   = "CanaryWaits"
	CanaryBack    = "CanaryBack"
	NoRoom        = "NoRoom"
	NoSpareMemory = "NoSpareMemory"
	MovesPaused   = "MovesPaused"
	MemberDrained = "MemberDrained"
)

// Whats returns the kinds of problems.
func Whats() []string {
	return []string{SlotUnowned, SlotClosed, DutyUnowned, MemberSilent, MemberStopped, LeaseMissing, OldCopy, MoveStuck,
		ReportMissing, Probation, KeyWaiting, SetupClash, NotElected, KindNotServed, KindRefused, LabelsRefused, SlotHeldBack,
		KeyHangs, KeyFails, KeyKills, PinUnmet, CanaryWaits, CanaryBack, NoRoom, NoSpareMemory, MovesPaused,
		MemberDrained}
}

const (
	// MoveLongest is how long a move may take before it counts as stuck. Most take less than a second. The owner reports a
	// move that waits for a slow reconcile after 10 s.
	MoveLongest = time.Minute
	// crashMemory and probation are defined by rule R9.
	crashMemory = 10 * time.Minute
	probation   = 5 * time.Minute
	probations  = 2
)

// evidence is what problems needs in addition to the view.
type evidence struct {
	// now is by the API server's clock if known. Members' clocks should be close to it.
	now    time.Time
	bounds coverage.Bounds
	// closed maps owners to the slots that they have reported closed for longer than bounds.Recovery.
	closed map[string]slot.Set
	// uid is the ConfigMap's. seenEpoch is the highest epoch of its table in a Lease.
	uid       string
	seenEpoch uint64
	// noLeases and noReports are true if these could not be read.
	noLeases, noReports bool
	differences         []coverage.Difference
	gone                []schema.GroupKind
}

// problems derives the problems, errors first. It is pure.
func problems(r *Rota, e evidence) []Problem {
	out := []Problem{}
	add := func(s Severity, what, slots, member, message string, args ...any) {
		out = append(out, Problem{Severity: s, What: what, Slots: slots, Member: member,
			Message: fmt.Sprintf(message, args...)})
	}
	if t := r.Table; t != nil && t.UID != e.uid {
		add(Error, OldCopy, "", "", "the table was restored from a copy, and no member has taken it over yet. That takes "+
			"a lease; if this persists, delete the ConfigMap, and the members create a new one")
		return out
	} else if t != nil && t.Epoch < e.seenEpoch {
		add(Error, OldCopy, "", "", "the table has epoch %d, but members have seen %d: an old copy overwrote it, and "+
			"all members stop working. Delete the ConfigMap, and the members create a new one", t.Epoch, e.seenEpoch)
		return out // members ignore this table
	}
	waits := r.memoryProblems(add)
	if free := r.runsOf(func(run Run) bool { return run.Owner == "" }); len(free) > 0 && !waits {
		message := "no member owns them, so no member works on their objects. "
		if len(r.Members) == 0 {
			message += "The rota has no members: start some"
		} else {
			message += "Members that renew their Leases take them within seconds; if not, look at their logs"
		}
		add(Error, SlotUnowned, SlotsText(free...), "", "%s", message)
	}
	if t := r.Table; t != nil {
		for _, d := range r.Duties {
			switch {
			case d.Owner != "":
			case !slices.ContainsFunc(t.Members, func(m table.Member) bool { return !m.Leaving }):
				add(Warn, DutyUnowned, "", "", "no member runs duty %s: all members are leaving, or have left", d.Name)
			case t.Older != 0:
				add(Warn, DutyUnowned, "", "", "no member runs duty %s: duties are suspended, because a process that does not "+
					"support them wants to join. Finish the rollout or the rollback", d.Name)
			default:
				add(Error, DutyUnowned, "", "", "no member runs duty %s. A member that can run it takes it within seconds; if "+
					"not, look at the members' logs", d.Name)
			}
		}
	}
	for _, m := range r.Members {
		r.memberProblems(m, e, add)
	}
	for _, m := range r.Moves {
		if m.Seconds == nil || *m.Seconds <= MoveLongest.Seconds() {
			continue
		}
		if report := r.Reports[m.To]; m.Phase != "drain" && report != nil && report.Waits != "" {
			continue // reported as NotElected
		}
		what, slots := "these slots", SlotsText(Run{First: m.First, Last: m.Last})
		if m.Duty != "" {
			what, slots = "duty "+m.Duty, ""
		}
		who, cure := m.To, "it lists objects, or waits for the last writes of the former owner: look at its log"
		if m.Phase == "drain" {
			who, cure = m.From, "a reconcile may be hanging: the event SlotHeldBack names it. "+
				"Delete that member's Pod to end it"
		}
		add(Warn, MoveStuck, slots, who, "%s have been moving to %s for %.0f s, in phase %s: %s", what, m.To, *m.Seconds,
			m.Phase, cure)
	}
	for _, kind := range e.gone {
		add(Error, KindNotServed, "", "", "the API server does not serve %s, which the members shard: its "+
			"CustomResourceDefinition was deleted with all objects, or no longer has a served version. No member works on "+
			"objects of that kind until it is back", kind)
	}
	for _, kind := range r.refusedKinds(cannotRead) {
		severity := Warn
		if !kind.Without.Empty() {
			severity = Error
		}
		add(severity, KindRefused, kind.Without.String(), "", "%s. Fix the object or the webhook in this message, or "+
			"restore the permission; members retry every few seconds", kind)
	}
	for _, kind := range r.refusedKinds(cannotLabel) {
		add(Warn, LabelsRefused, kind.Without.String(), "", "%s. Make the policy or webhook allow changes that only "+
			"add such a label; members retry every few minutes", kind.Unlabelled())
	}
	for _, d := range e.differences {
		if d.Clash != "" {
			add(Error, SetupClash, "", "", "%s", d)
		}
	}
	out = append(out, r.healthProblems(e.now)...)
	out = append(out, r.orderProblems()...)
	slices.SortStableFunc(out, func(a, b Problem) int { return strings.Compare(string(a.Severity), string(b.Severity)) })
	return out
}

func (r *Rota) runsOf(match func(Run) bool) (out []Run) {
	for _, run := range r.Runs {
		if match(run) {
			out = append(out, run)
		}
	}
	return out
}

// refusedKinds merges what members report about refused kinds, one entry for each kind.
func (r *Rota) refusedKinds(reported func(*coverage.Report) []coverage.Refused) (out []coverage.Refused) {
	for _, m := range r.Members {
		if report := r.Reports[m.ID]; report != nil {
			out = append(out, reported(report)...)
		}
	}
	return coverage.MergeRefused(out)
}

// unlabelled returns what members report about refused labels of a kind, or nil.
func (r *Rota) unlabelled(kind schema.GroupKind) *coverage.Refused {
	for _, refused := range r.refusedKinds(cannotLabel) {
		if refused.Kind == kind {
			return &refused
		}
	}
	return nil
}

func cannotRead(r *coverage.Report) []coverage.Refused  { return r.Refused }
func cannotLabel(r *coverage.Report) []coverage.Refused { return r.Unlabelled }

// renewed reports whether any member has a Lease that has not expired. Only such a member expels others.
func (r *Rota) renewed() bool {
	return slices.ContainsFunc(r.Members, func(m Member) bool { return m.Left != nil && *m.Left >= 0 })
}

// memberProblems adds the problems of a member and its slots.
func (r *Rota) memberProblems(m Member, e evidence,
	add func(s Severity, what, slots, member, message string, args ...any),
) {
	owned := SlotsText(r.runsOf(func(run Run) bool { return run.Owner == m.ID })...)
	severity := Error
	if m.Owned == 0 {
		severity = Warn
	}
	report := r.Reports[m.ID]
	switch {
	case m.State == Silent:
		next := "Other members take its slots within seconds"
		if !r.renewed() {
			next = "No other member renews its Lease either, so no member takes its slots: look at what they have in common, " +
				"such as their permissions (rota check --service-account), admission webhooks that match Leases, the network, " +
				"and the API server"
		}
		add(severity, MemberSilent, owned, m.ID, "its Lease expired %.0f s ago. %s. "+
			"`kubectl get pod %s -o yaml` has the last exit code (137: out of memory, or killed)", -*m.Left, next, m.Pod)
		return
	case m.State == Stopped && m.Gate != names.GateShut:
		add(severity, MemberStopped, owned, m.ID, "it last renewed its Lease %.0f s ago, longer than RenewDeadline, so "+
			"it has stopped working, or is gone. If it does not renew it within %.0f s, others take its slots. Look at its "+
			"Pod %s, the API server, and the network between them", m.Lease-*m.Left, max(0, *m.Left), m.Pod)
		return
	case m.State == Stopped:
		add(Error, MemberStopped, owned, m.ID, "its gate is shut: it could not renew its Lease in time, or it waits for a "+
			"new table. Look at the API server and the network between them; it resumes on its own")
		return
	case m.Renewed == nil && !e.noLeases:
		add(severity, LeaseMissing, owned, m.ID, "it has no Lease: it was deleted, or the member is gone. Others take "+
			"its slots after a lease")
		return
	}
	closed := e.closed[m.ID]
	switch {
	case r.Shadow != nil: // a shadow never works
	case report != nil && report.Waits != "":
		add(Warn, NotElected, owned, m.ID, "%s. It continues once that process has ended", report.Waits)
	case !closed.Empty():
		add(Error, SlotClosed, SetText(closed), m.ID, "the owner reports that it does not work on them, and no move is "+
			"under way. First save the evidence: `rota dump`. Then restart that member, and report it with the archive")
	}
	if report == nil && m.Owned > 0 && !e.noReports && e.now.Sub(m.Joined) > e.bounds.Recovery {
		text := "it does not report what it holds"
		if age, was := r.Stale[m.ID]; was {
			text = fmt.Sprintf("it has not reported what it holds for %.0f s", age.Seconds())
		}
		add(Warn, ReportMissing, "", m.ID, "%s, so it cannot be checked: it may lack the permission to write Leases",
			text)
	}
	// Blocked controllers are reported as KeyHangs.
	if m.OldestWaiting != nil && *m.OldestWaiting >= coverage.StalledAfter.Seconds() && len(report.Blocked) == 0 {
		add(Warn, KeyWaiting, "", m.ID, "a key has been waiting for a worker for %.0f s: all workers are busy. Look at the "+
			"reconciler, and at MaxConcurrentReconciles", *m.OldestWaiting)
	}
	if t := r.Table; t != nil && m.State == Waiting && onProbation(t, m, e.now) {
		add(Warn, Probation, "", m.ID, "Pod %s was expelled %d times within 10 minutes, so it gets no slots until it has "+
			"been up for 5. Usually it runs out of memory (exit code 137): give each replica more, or add replicas. If one "+
			"Pod after another does, an object may be the cause: kubectl logs --previous shows what each did last",
			m.Pod, expels(t, m.Pod, e.now))
	}
}

// onProbation follows rule R9.
func onProbation(t *table.Table, m Member, at time.Time) bool {
	return at.Sub(m.Joined).Abs() < probation && expels(t, m.Pod, at) >= probations
}

func expels(t *table.Table, pod string, at time.Time) int {
	n := 0
	for _, e := range t.Expels {
		if e.Pod == pod && at.Sub(time.Unix(e.At, 0)).Abs() < crashMemory {
			n++
		}
	}
	return n
}
