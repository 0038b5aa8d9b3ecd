package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/cli/view"
)

// grouped groups the members by a word, and formats the groups. It leaves out members whose word is empty.
func grouped(v *view.Rota, word func(view.Member) string) (words []string, text string) {
	members := map[string][]string{}
	for _, m := range v.Members {
		if w := word(m); w != "" {
			if members[w] == nil {
				words = append(words, w)
			}
			members[w] = append(members[w], m.ID)
		}
	}
	slices.Sort(words)
	var parts []string
	for _, w := range words {
		some, more := members[w], ""
		if n := len(some) - 3; n > 0 {
			some, more = some[:3], fmt.Sprintf(" and %d more", n)
		}
		parts = append(parts, fmt.Sprintf("%s (%s%s)", w, strings.Join(some, ", "), more))
	}
	return words, strings.Join(parts, ", ")
}

func youngestOf(members []view.Member) time.Time {
	var out time.Time
	for _, m := range members {
		if m.Joined.After(out) {
			out = m.Joined
		}
	}
	return out
}

func (r *run) slots(v *view.Rota) {
	if !r.found(groupSlots, view.SlotUnowned, view.SlotClosed, view.MoveStuck) {
		text := fmt.Sprintf("all %d slots have an owner", v.Slots)
		if n := len(v.Moves); n > 0 {
			text += fmt.Sprintf("; %d runs of slots, or duties, are moving", n)
		}
		r.good(groupSlots, view.SlotUnowned, "%s", text)
	}
	r.moves(v)
	r.open(v)
	if !r.found(groupObjects) && len(v.Reports) > 0 && v.Shadow == nil {
		text := "no reconcile has been running for 5 minutes, and no object keeps failing"
		if n := len(v.Worst); n > 0 {
			text += fmt.Sprintf(" for long; %d may: rota status -o wide", n)
		}
		r.good(groupObjects, view.KeyFails, "%s", text)
	}
	if !r.found(groupDuties) && len(v.Duties) > 0 {
		r.good(groupDuties, view.DutyUnowned, "every duty has a member (%d)", len(v.Duties))
	}
}

// coverage reports what is known about rule R14 without the comparison of `rota verify`.
func (r *run) coverage(v *view.Rota) {
	i := slices.IndexFunc(v.Duties, func(d view.Duty) bool { return d.Name == scrubDuty })
	who := ""
	if i >= 0 {
		who = v.Duties[i].Owner
	}
	const verify = "rota verify shows the current state"
	found := false
	for _, w := range v.Now() {
		if w.Reason == codeCoverage {
			found = true
			r.add(groupCoverage, Line{Level: Warning, Code: codeCoverage, Member: cmp.Or(w.ID, w.Member), Cure: verify,
				Text: fmt.Sprintf("%s ago: %s", ago(v, w), w.Message)})
		}
	}
	if r.found(groupCoverage) || found || len(v.Members) == 0 {
		return
	}
	text := fmt.Sprintf("%d of %d members report what they hold", len(v.Reports), len(v.Members))
	if !unknownIn(v, "warnings") {
		text += "; no finding in the last hour"
	}
	if who != "" {
		text += "; " + who + " compares"
	}
	r.good(groupCoverage, codeCoverage, "%s. %s", text, verify)
}

// events reports the other current warnings of the last hour, and how many are over.
func (r *run) events(v *view.Rota) {
	var now []view.Warning
	over := map[string]int{}
	for _, w := range v.Earlier() {
		over[w.Reason]++
	}
	for _, w := range v.Now() {
		switch {
		case w.Reason == codeCoverage, w.Reason == view.SlotHeldBack: // already reported
		case w.Reason == codePermission && r.permitted():
			over[w.Reason]++
		default:
			now = append(now, w)
		}
	}
	for _, w := range now[:min(len(now), maxWarnings)] {
		text, rule, _ := strings.Cut(w.Message, "\n")
		r.add(groupEvents, Line{Level: Warning, Code: w.Reason, Member: cmp.Or(w.ID, w.Member), Cure: rule,
			Text: fmt.Sprintf("%s, %s ago: %s", w.Reason, ago(v, w), oneLineText(text))})
	}
	if len(over) > 0 {
		var words []string
		for _, reason := range slices.Sorted(maps.Keys(over)) {
			words = append(words, fmt.Sprintf("%s (%d)", reason, over[reason]))
		}
		r.good(groupEvents, codeEarlier, "earlier, and over: %s; rota status -o wide -n %s %s lists them",
			strings.Join(words, ", "), v.Namespace, v.Name)
	}
}

// permitted reports whether the check found that the operator has all permissions.
func (r *run) permitted() bool {
	return len(r.lines[groupPermissions]) > 0 && !r.found(groupPermissions)
}

func ago(v *view.Rota, w view.Warning) time.Duration {
	return max(0, v.At.Sub(w.At)).Round(time.Second)
}

func oneLineText(text string) string { return strings.Join(strings.Fields(text), " ") }
