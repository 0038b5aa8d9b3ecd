package view

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/slot"
)

// An event stays for an hour, whatever became of it. So each warning is held against what is known now: one whose
// matter is over is told apart from those that may still be so. When in doubt, a warning counts as one of now.

// Quiet times after which a warning that its sender would have repeated is over. Members that wait to join repeat it
// every 30 minutes, and a Pod that is restarted again and again sends it at each start. Members repeat that a
// permission is missing every 10 minutes.
const (
	quietWaiting    = 31 * time.Minute
	quietStarting   = 11 * time.Minute
	quietPermission = 11 * time.Minute
)

// Now returns the warnings of the last hour that may still be so, and Earlier those whose matter is over. Both are
// newest first. Of warnings of one member that differ in durations only, the newest is there.
func (r *Rota) Now() []Warning {
	return newest(r.Warnings, func(w Warning) bool { return w.Over == "" })
}

// Earlier returns the warnings that are over, newest first.
func (r *Rota) Earlier() []Warning {
	return newest(r.Warnings, func(w Warning) bool { return w.Over != "" })
}

// durations are the parts of a message that differ when it is repeated.
var durations = regexp.MustCompile(`\b(\d+(\.\d+)?(h|m|s|ms))+\b`)

func newest(warnings []Warning, match func(Warning) bool) (out []Warning) {
	type about struct{ sender, reason, text string }
	seen := map[about]bool{}
	for _, w := range slices.Backward(warnings) {
		key := about{cmp.Or(w.ID, w.Member), w.Reason, durations.ReplaceAllString(w.Message, "")}
		if match(w) && !seen[key] {
			seen[key] = true
			out = append(out, w)
		}
	}
	return out
}

// judgeWarnings finds out who sent the warnings, and which are over.
func (r *Rota) judgeWarnings() {
	all := slices.Clone(r.Warnings)
	for i := range all {
		w := &all[i]
		if w.Reason == "Expelled" {
			w.About, _, _ = strings.Cut(strings.TrimPrefix(w.Message, "member "), " ")
		}
		m, known := r.senderOf(*w)
		if known {
			w.ID = m.ID
			w.Over = r.overFor(*w, m)
		} else {
			w.Over = r.overWithout(*w)
		}
	}
	r.Warnings = all
}

// senderOf returns the member that sent an event. Events name a Pod, and several processes follow one another in a Pod:
// what was sent before the member joined is not its own, or is about what it waited for.
func (r *Rota) senderOf(w Warning) (out Member, known bool) {
	for _, m := range r.Members {
		if (m.Pod == w.Member || m.ID == w.Member) && !w.At.Before(m.Joined) && (!known || m.Joined.After(out.Joined)) {
			out, known = m, true
		}
	}
	return out, known
}

// overFor says why what a present member warned of is over; empty: it may still be so.
func (r *Rota) overFor(w Warning, m Member) string {
	if why := r.overForAll(w); why != "" {
		return why
	}
	report := r.Reports[m.ID]
	switch w.Reason {
	case "Lapsed":
		if m.Renewed != nil && m.Renewed.After(w.At) && m.State != Silent && m.State != Stopped &&
			(report == nil || report.Waits == "") {
			return "it has renewed its Lease since"
		}
	case "NotElected":
		if report != nil && report.Waits == "" && report.Written.After(w.At) || r.noticed("Elected", "", w) {
			return "the rota holds leader election's Lease"
		}
	case "PermissionMissing":
		return r.overPermission(w, m)
	case "SlotHeldBack":
		if !r.holdsBack(w, m) {
			return "it has moved on, or need not move any more"
		}
	case "ReconcilesFail":
		if r.noticed("ReconcilesSucceed", subjectOf(w.Message), w) {
			return "its reconciles succeed again"
		}
	case "DutyFails":
		name := strings.TrimPrefix(subjectOf(w.Message), "duty ")
		i := slices.IndexFunc(r.Duties, func(d Duty) bool { return d.Name == name })
		switch {
		case r.noticed("DutyWorks", subjectOf(w.Message), w):
			return "it works again"
		case i < 0 || r.Duties[i].Owner != m.ID:
			return "another member does the duty, or nobody"
		}
	}
	return ""
}

// overWithout says why what somebody else than a present member warned of is over.
func (r *Rota) overWithout(w Warning) string {
	if why := r.overForAll(w); why != "" {
		return why
	}
	for _, m := range r.Members {
		switch {
		case m.Pod != w.Member && m.ID != w.Member || !w.At.Before(m.Joined):
		case w.Reason == "PermissionMissing": // a member joins without some
			return r.overPermission(w, m)
		default:
			return m.ID + " has joined there since"
		}
	}
	if r.noticed("Leaving", "", w) || slices.ContainsFunc(r.Warnings, func(e Warning) bool {
		return e.Reason == "Expelled" && !e.At.Before(w.At) && strings.HasPrefix(e.Message, "member "+w.Member+"-")
	}) {
		return "that process has ended"
	}
	switch w.Reason {
	case SlotHeldBack, "ReconcilesFail", "DutyFails": // of slots and duties that it no longer has
		return "that member has gone"
	}
	all := len(r.Members) > 0
	for _, m := range r.Members {
		all = all && m.Joined.After(w.At)
	}
	quiet := quietStarting
	if w.Reason == "NotJoining" || w.Reason == "SetupDiffers" {
		quiet = quietWaiting
	}
	switch {
	case r.At.Sub(w.At) > quiet:
		return "it has not been said again"
	case all && quiet != quietWaiting:
		return "all members have joined since"
	}
	return ""
}

// overForAll says why a warning about the whole rota is over, whoever sent it.
func (r *Rota) overForAll(w Warning) string {
	switch w.Reason {
	case "Expelled":
		_, there := r.memberOf(w.About)
		if !there && len(r.runsOf(func(run Run) bool { return run.Owner == "" || run.Activating })) == 0 {
			return "others work on its slots"
		}
	case "TableInvalid":
		if r.noticed("TableValid", "", w) {
			return "the table is valid again"
		}
	case "TableLost":
		if !r.hasProblem(OldCopy) {
			return "there is a table"
		}
	case "DutiesSuspended":
		if r.Table != nil && r.Table.Older == 0 {
			return "duties are done again"
		}
	case "ClockSkew":
		id, _, _ := strings.Cut(strings.TrimPrefix(w.Message, "member "), " ")
		if _, there := r.memberOf(id); !there {
			return "that member has gone"
		}
	case "SetupDiffers":
		if _, unread := r.Unread("reports"); !unread && len(r.Differences) == 0 && !r.hasProblem(SetupClash) &&
			len(r.Reports) == len(r.Members) && !strings.HasPrefix(w.Message, "This member takes no slots") {
			return "members are alike"
		}
	case KindNotServed:
		if _, unread := r.Unread("kinds"); !unread && !r.hasProblem(KindNotServed) {
			return "the API server serves all kinds"
		}
	case KindRefused:
		if _, unread := r.Unread("reports"); !unread && len(r.Reports) == len(r.Members) && !r.hasProblem(KindRefused) {
			return "members can list and watch all kinds"
		}
	case LabelsRefused:
		if _, unread := r.Unread("reports"); !unread && len(r.Reports) == len(r.Members) && !r.hasProblem(LabelsRefused) {
			return "members can label all objects"
		}
	}
	return ""
}

// overPermission says why a permission is no longer missing. That of Leases shows in them; of others, the member would
// have said again that it is.
func (r *Rota) overPermission(w Warning, m Member) string {
	report := r.Reports[m.ID]
	leases := strings.Contains(w.Message, `resources: ["leases"]`)
	writes := !strings.Contains(w.Message, `verbs: ["list"]`) && !strings.Contains(w.Message, `verbs: ["watch"]`) &&
		!strings.Contains(w.Message, `verbs: ["delete"]`)
	switch {
	case leases && writes && m.Renewed != nil && m.Renewed.After(w.At) && report != nil && report.Written.After(w.At):
		return "it has written its Leases since"
	case r.At.Sub(w.At) > quietPermission:
		return "it has not been said again"
	}
	return ""
}

// heldPlace finds in a SlotHeldBack what cannot move.
var heldPlace = regexp.MustCompile(`^(?:slots? ([0-9][0-9,\- ]*)|duty (\S+)) cannot move on`)

// holdsBack says whether what a member said that it holds back is still to move from it.
func (r *Rota) holdsBack(w Warning, m Member) bool {
	place := heldPlace.FindStringSubmatch(w.Message)
	return slices.ContainsFunc(r.Moves, func(move Move) bool {
		if move.From != m.ID {
			return false
		}
		if place == nil { // of functions in several slots
			return move.Duty == ""
		}
		if place[2] != "" || move.Duty != "" {
			return move.Duty == place[2]
		}
		slots := slotsIn(w.Message)
		both := slots.Intersect(slot.SetOf(slot.Range{First: slot.Slot(move.First), Last: slot.Slot(move.Last)}))
		return slots.Empty() || !both.Empty()
	})
}

// subjectOf returns the controller or duty with which a message begins, as "controller website" or "duty backup".
func subjectOf(message string) string {
	words := strings.Fields(message)
	if len(words) < 2 {
		return ""
	}
	return strings.ToLower(words[0]) + " " + strings.TrimSuffix(words[1], ":")
}

// noticed says whether the sender of a warning sent another event later, about that subject if there is one.
func (r *Rota) noticed(reason, subject string, w Warning) bool {
	return slices.ContainsFunc(r.Notices, func(n Warning) bool {
		return n.Reason == reason && n.Member == w.Member && n.At.After(w.At) &&
			(subject == "" || subjectOf(n.Message) == subject)
	})
}

func (r *Rota) hasProblem(what string) bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.What == what })
}

// addHeldBack makes problems of slots and duties that are held back now.
func (r *Rota) addHeldBack() {
	for _, w := range r.Now() {
		if w.Reason == SlotHeldBack {
			r.Problems = append(r.Problems, Problem{Severity: Warn, What: SlotHeldBack, Member: w.ID,
				Slots: SetText(slotsIn(w.Message)), Message: inOneLine(w.Message) + ". If reconciles normally take minutes, " +
					"do nothing. Otherwise delete that member's Pod to have it ended"})
		}
	}
}
