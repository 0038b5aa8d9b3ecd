package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/coverage"
)

// What happened.
const (
	HappenedJoin     = "joined"
	HappenedExpel    = "expelled"
	HappenedHandover = "handover"
	HappenedDrain    = "drain"
	HappenedPause    = "pause"
	HappenedWarning  = "warning"
	HappenedNotice   = "notice"
)

// Event is something that happened to a rota.
type Event struct {
	// At is when, by the clock of the member or machine that wrote it. What is one of the words above.
	At   time.Time `json:"at"`
	What string    `json:"what"`
	// Member is the ID, or for an expel the Pod. For a handover it is the one that got the slots.
	Member string `json:"member,omitempty"`
	// Text says it in words, with the reason.
	Text string `json:"text"`
	// Handover is set for a handover, Reason says why it took place.
	Handover *Handover `json:"handover,omitempty"`
	Reason   Reason    `json:"reason,omitempty"`
}

// addHistory collects past events from the table, the reports and the API server's events of the last hour.
func (r *Rota) addHistory() {
	r.History = []Event{}
	add := func(at time.Time, what, member, format string, args ...any) {
		r.History = append(r.History, Event{At: at, What: what, Member: member, Text: fmt.Sprintf(format, args...)})
	}
	for _, m := range r.Members {
		add(m.Joined, HappenedJoin, m.ID, "joined%s", r.buildText(m))
	}
	for _, e := range r.Table.Expels {
		if told(r.Warnings, "Expelled", "member "+e.Pod+"-", e.At) {
			continue
		}
		add(time.Unix(e.At, 0), HappenedExpel, e.Pod, "did not renew its Lease in time, its container was restarted, or "+
			"somebody deleted its Lease; others got its slots")
	}
	for _, id := range slices.Sorted(maps.Keys(r.Reports)) {
		for _, got := range r.Reports[id].Handovers {
			r.History = append(r.History, r.happened(id, got))
		}
	}
	if t := r.Table; t.Paused() && !told(r.Notices, "MovesPaused", "", t.Pause.Since) {
		add(time.Unix(t.Pause.Since, 0), HappenedPause, "", "moves were paused%s, and still are",
			askedText(t.Pause.By, t.Pause.Reason))
	}
	for _, d := range r.Table.Drains {
		if told(r.Notices, "MemberDrained", d.ID, d.Since) {
			continue
		}
		add(time.Unix(d.Since, 0), HappenedDrain, d.ID, "was to be drained%s, and still is", askedText(d.By, d.Reason))
	}
	for what, events := range map[string][]Warning{HappenedWarning: r.Warnings, HappenedNotice: r.Notices} {
		for _, e := range events {
			add(e.At, what, cmp.Or(e.About, e.Member), "%s: %s", e.Reason, inOneLine(e.Message))
		}
	}
	slices.SortStableFunc(r.History, func(a, b Event) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Member, b.Member))
	})
	r.HistoryReach = r.reach()
}

// told says whether an event tells what the table has, too: of that reason, with that word, within some seconds.
func told(events []Warning, reason, word string, at int64) bool {
	return slices.ContainsFunc(events, func(e Warning) bool {
		return e.Reason == reason && strings.Contains(e.Message, word) && e.At.Sub(time.Unix(at, 0)).Abs() < 10*time.Second
	})
}

func (r *Rota) buildText(m Member) string {
	if m.Build == "" {
		return ""
	}
	return ", build " + m.Build
}

func askedText(by, reason string) string {
	text := ""
	if by != "" {
		text = " by " + by
	}
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}

// happened describes a handover.
func (r *Rota) happened(to string, got coverage.Handover) Event {
	h := handoverOf(to, got)
	e := Event{At: got.Ended, What: HappenedHandover, Member: to, Handover: &h}
	var why string
	e.Reason, why = r.reasonOf(h.Cause, to, h.From, &got.Ended)
	what := fmt.Sprintf("%d slots", h.Count)
	switch {
	case h.Duty != "":
		what = "duty " + h.Duty
	case h.Count == 1:
		what = "slot " + h.Slots
	case len(got.Slots.Ranges()) == 1 && got.Slots.Len() == h.Count:
		what = "slots " + h.Slots
	}
	e.Text = fmt.Sprintf("got %s: %s%s", what, why, phasesText(h))
	return e
}

// phasesText says how long the phases of a handover took that took place.
func phasesText(h Handover) string {
	var phases []string
	for _, p := range []struct {
		name    string
		seconds float64
	}{{"warm", h.Warm}, {"drain", h.Drain}, {"activate", h.Activate}} {
		if p.seconds > 0 {
			phases = append(phases, fmt.Sprintf("%s %v", p.name,
				time.Duration(p.seconds*float64(time.Second)).Round(time.Millisecond)))
		}
	}
	if len(phases) == 0 {
		return ""
	}
	return " (" + strings.Join(phases, ", ") + ")"
}

// reach says how far back the history goes.
func (r *Rota) reach() []string {
	out := []string{
		"joins: of the members that are there. Of those that have gone nothing is kept but expels",
		fmt.Sprintf("expels: of the last %.0f minutes, by the table. Older ones stay until the next expel",
			crashMemory.Minutes()),
		"handovers: the last few that each member got. A member takes them along when it ends",
	}
	for _, m := range r.Members {
		report := r.Reports[m.ID]
		switch {
		case report == nil:
			out = append(out, m.ID+" does not report its handovers")
		case len(report.Handovers) > 0:
			oldest := report.Handovers[len(report.Handovers)-1].Ended
			out = append(out, fmt.Sprintf("%s tells of %d, back to %s", m.ID, len(report.Handovers),
				oldest.Local().Format(time.DateTime)))
		default:
			out = append(out, m.ID+" tells of none")
		}
	}
	return append(out, fmt.Sprintf("warnings and notices: of the last %.0f minutes, as the API server keeps events",
		warningAge.Minutes()))
}
