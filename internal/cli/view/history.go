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

// Values of Event.What.
const (
	HappenedJoin     = "joined"
	HappenedExpel    = "expelled"
	HappenedHandover = "handover"
	HappenedDrain    = "drain"
	HappenedPause    = "pause"
	HappenedWarning  = "warning"
	HappenedNotice   = "notice"
)

// Event is a past event of a rota.
type Event struct {
	// At is by the clock of the member or machine that wrote it.
	At   time.Time `json:"at"`
	What string    `json:"what"`
	// Member is an ID, or for an expel the Pod. For a handover it is the new owner.
	Member string `json:"member,omitempty"`
	// Text describes the event with its reason.
	Text string `json:"text"`
	// Handover and its Reason are set for a handover.
	Handover *Handover `json:"handover,omitempty"`
	Reason   Reason    `json:"reason,omitempty"`
}

// addHistory collects past events from the table, the reports and the events of the last hour.
func (r *Rota) addHistory() {
	r.History = []Event{}
	add := func(at time.Time, what, member, format string, args ...any) {
		r.History = append(r.History, Event{At: at, What: what, Member: member, Text: fmt.Sprintf(format, args...)})
	}
	for _, m := range r.Members {
		add(m.Joined, HappenedJoin, m.ID, "joined%s", r.buildText(m))
	}
	for _, e := range r.Table.Expels {
		if hasEvent(r.Warnings, "Expelled", "member "+e.Pod+"-", e.At) {
			continue
		}
		add(time.Unix(e.At, 0), HappenedExpel, e.Pod, "did not renew its Lease in time, its container was restarted, or "+
			"its Lease was deleted; others got its slots")
	}
	for _, id := range slices.Sorted(maps.Keys(r.Reports)) {
		for _, got := range r.Reports[id].Handovers {
			r.History = append(r.History, r.happened(id, got))
		}
	}
	if t := r.Table; t.Paused() && !hasEvent(r.Notices, "MovesPaused", "", t.Pause.Since) {
		add(time.Unix(t.Pause.Since, 0), HappenedPause, "", "moves were paused%s, and still are",
			byText(t.Pause.By, t.Pause.Reason))
	}
	for _, d := range r.Table.Drains {
		if hasEvent(r.Notices, "MemberDrained", d.ID, d.Since) {
			continue
		}
		add(time.Unix(d.Since, 0), HappenedDrain, d.ID, "was drained%s, and still is", byText(d.By, d.Reason))
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

// hasEvent reports whether an event with that reason, word and time, within a few seconds, was emitted.
func hasEvent(events []Warning, reason, word string, at int64) bool {
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

func byText(by, reason string) string {
	text := ""
	if by != "" {
		text = " by " + by
	}
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}

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

// phasesText formats the durations of a handover's phases.
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

// reach describes how far back the history goes.
func (r *Rota) reach() []string {
	out := []string{
		"joins: only of current members. For former members only expels are kept",
		fmt.Sprintf("expels: the last %.0f minutes, from the table. Older ones stay until the next expel",
			crashMemory.Minutes()),
		"handovers: the last few of each current member",
	}
	for _, m := range r.Members {
		report := r.Reports[m.ID]
		switch {
		case report == nil:
			out = append(out, m.ID+" does not report its handovers")
		case len(report.Handovers) > 0:
			oldest := report.Handovers[len(report.Handovers)-1].Ended
			out = append(out, fmt.Sprintf("%s reports %d, back to %s", m.ID, len(report.Handovers),
				oldest.Local().Format(time.DateTime)))
		default:
			out = append(out, m.ID+" reports none")
		}
	}
	return append(out, fmt.Sprintf("warnings and notices: the last %.0f minutes, as long as the API server keeps events",
		warningAge.Minutes()))
}
