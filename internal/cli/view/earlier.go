package view

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/slot"
)

// An event stays for an hour, even if its cause is gone. So each warning is compared with the current state, and
// warnings that are over are listed separately. In doubt, a warning counts as current.

// A warning that its sender would have repeated is over after these times. Members that wait to join repeat it every 30
// minutes, a Pod that crashes sends it at each start, and members repeat missing permissions every 10 minutes.
const (
	quietWaiting    = 31 * time.Minute
	quietStarting   = 11 * time.Minute
	quietPermission = 11 * time.Minute
)

// Now returns the current warnings of the last hour, newest first. Of one member's warnings that differ only in
// durations, it returns the newest.
func (r *Rota) Now() []Warning {
	return newest(r.Warnings, func(w Warning) bool { return w.Over == "" })
}

// Earlier returns the warnings that are over, newest first, deduplicated as in Now.
func (r *Rota) Earlier() []Warning {
	return newest(r.Warnings, func(w Warning) bool { return w.Over != "" })
}

// durations matches the parts of a message that change when it is repeated.
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

// judgeWarnings finds the senders of the warnings, and the warnings that are over.
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

// senderOf returns the member that sent an event. Events name a Pod, in which several processes may run in turn. An
// event from before the member joined is from an earlier process, or about joining.
func (r *Rota) senderOf(w Warning) (out Member, known bool) {
	for _, m := range r.Members {
		if (m.Pod == w.Member || m.ID == w.Member) && !w.At.Before(m.Joined) && (!known || m.Joined.After(out.Joined)) {
			out, known = m, true
		}
	}
	return out, known
}

// overFor returns why a current member's warning is over, or "".
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
		if report != nil && report.Waits == "" && report.Written.After(w.At) || r.sentLater("Elected", "", w) {
			return "the rota holds leader election's Lease"
		}
	case "PermissionMissing":
		return r.overPermission(w, m)
	case "SlotHeldBack":
		if !r.holdsBack(w, m) {
			return "it has moved on, or no longer needs to move"
		}
	case "ReconcilesFail":
		if r.sentLater("ReconcilesSucceed", subjectOf(w.Message), w) {
			return "its reconciles succeed again"
		}
	case "DutyFails":
		name := strings.TrimPrefix(subjectOf(w.Message), "duty ")
		i := slices.IndexFunc(r.Duties, func(d Duty) bool { return d.Name == name })
		switch {
		case r.sentLater("DutyWorks", subjectOf(w.Message), w):
			return "it works again"
		case i < 0 || r.Duties[i].Owner != m.ID:
			return "another member does the duty, or none does"
		}
	}
	return ""
}

// overWithout returns why a warning is over whose sender is not a current member, or "".
func (r *Rota) overWithout(w Warning) string {
	if why := r.overForAll(w); why != "" {
		return why
	}
	for _, m := range r.Members {
		switch {
		case m.Pod != w.Member && m.ID != w.Member || !w.At.Before(m.Joined):
		case w.Reason == "PermissionMissing": // members join without some permissions
			return r.overPermission(w, m)
		default:
			return m.ID + " has joined there since"
		}
	}
	if r.sentLater("Leaving", "", w) || slices.ContainsFunc(r.Warnings, func(e Warning) bool {
		return e.Reason == "Expelled" && !e.At.Before(w.At) && strings.HasPrefix(e.Message, "member "+w.Member+"-")
	}) {
		return "that process has ended"
	}
	switch w.Reason {
	case SlotHeldBack, "ReconcilesFail", "DutyFails": // about slots and duties that it no longer owns
		return "that member is gone"
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
		return "it has not been repeated"
	case all && quiet != quietWaiting:
		return "all members have joined since"
	}
	return ""
}

// overForAll returns why a warning about the whole rota is over, or "".
func (r *Rota) overForAll(w Warning) string {
	switch w.Reason {
	case "Expelled":
		_, there := r.memberOf(w.About)
		if !there && len(r.runsOf(func(run Run) bool { return run.Owner == "" || run.Activating })) == 0 {
			return "other members work on its slots"
		}
	case "TableInvalid":
		if r.sentLater("TableValid", "", w) {
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
			return "that member is gone"
		}
	case "SetupDiffers":
		if _, unread := r.Unread("reports"); !unread && len(r.Differences) == 0 && !r.hasProblem(SetupClash) &&
			len(r.Reports) == len(r.Members) && !strings.HasPrefix(w.Message, "This member takes no slots") {
			return "members have the same settings"
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

// overPermission returns why a permission is no longer missing, or "". For Leases the Leases show it; for other
// permissions the member would have repeated the warning.
func (r *Rota) overPermission(w Warning, m Member) string {
	report := r.Reports[m.ID]
	leases := strings.Contains(w.Message, `resources: ["leases"]`)
	writes := !strings.Contains(w.Message, `verbs: ["list"]`) && !strings.Contains(w.Message, `verbs: ["watch"]`) &&
		!strings.Contains(w.Message, `verbs: ["delete"]`)
	switch {
	case leases && writes && m.Renewed != nil && m.Renewed.After(w.At) && report != nil && report.Written.After(w.At):
		return "it has written its Leases since"
	case r.At.Sub(w.At) > quietPermission:
		return "it has not been repeated"
	}
	return ""
}

// heldPlace matches the slot or duty that cannot move in a SlotHeldBack.
var heldPlace = regexp.MustCompile(`^(?:slots? ([0-9][0-9,\- ]*)|duty (\S+)) cannot move on`)

// holdsBack reports whether what a SlotHeldBack is about is still to move from the member.
func (r *Rota) holdsBack(w Warning, m Member) bool {
	place := heldPlace.FindStringSubmatch(w.Message)
	return slices.ContainsFunc(r.Moves, func(move Move) bool {
		if move.From != m.ID {
			return false
		}
		if place == nil { // functions in several slots
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

// subjectOf returns the controller or duty at the start of a message, such as "controller website" or "duty backup".
func subjectOf(message string) string {
	words := strings.Fields(message)
	if len(words) < 2 {
		return ""
	}
	return strings.ToLower(words[0]) + " " + strings.TrimSuffix(words[1], ":")
}

// sentLater reports whether the sender of a warning later sent another event with this reason, and about the subject if
// there is one.
func (r *Rota) sentLater(reason, subject string, w Warning) bool {
	return slices.ContainsFunc(r.Notices, func(n Warning) bool {
		return n.Reason == reason && n.Member == w.Member && n.At.After(w.At) &&
			(subject == "" || subjectOf(n.Message) == subject)
	})
}

func (r *Rota) hasProblem(what string) bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.What == what })
}

// addHeldBack adds a problem for each slot or duty that is held back now.
func (r *Rota) addHeldBack() {
	for _, w := range r.Now() {
		if w.Reason == SlotHeldBack {
			r.Problems = append(r.Problems, Problem{Severity: Warn, What: SlotHeldBack, Member: w.ID,
				Slots: SetText(slotsIn(w.Message)), Message: inOneLine(w.Message) + ". If reconciles normally take minutes, " +
					"do nothing. Otherwise delete that member's Pod to end it"})
		}
	}
}
