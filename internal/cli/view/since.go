package view

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// joinTime is how long a new member may take to get its share: it waits for its turn, 10 s longer in a rollout, and
// lists.
const joinTime = time.Minute

// since returns when and why the owner of a run got it, from its report, or from the table while the run activates.
func (r *Rota) since(run table.Run) *Since {
	s := &Since{Epoch: run.Epoch, Cause: r.causeOf(run)}
	h, known := r.handoverOf(run)
	if known {
		s.At, s.From = ptr.To(h.Ended), h.From
	}
	s.Reason, s.Text = r.reasonOf(s.Cause, run.Owner, s.From, s.At)
	return s
}

// handoverOf returns the handover that gave a slot to its owner, if the owner's report still lists it.
func (r *Rota) handoverOf(run table.Run) (coverage.Handover, bool) {
	if report := r.Reports[run.Owner]; report != nil {
		for _, h := range report.Handovers {
			// A report only lists the first of many runs.
			if h.Epoch == run.Epoch && h.Duty == "" && (h.Slots.Has(run.Slots.First) || h.Count > h.Slots.Len()) {
				return h, true
			}
		}
	}
	return coverage.Handover{}, false
}

// reasonOf derives why a member got slots from the cause, the former owner, and the time at which the member began to
// work on them. from may be empty, and at nil.
func (r *Rota) reasonOf(cause, to, from string, at *time.Time) (Reason, string) {
	switch cause {
	case table.CauseAssigned.String():
		return Assigned, "it had no owner, as at the start of a rota"
	case table.CauseExpelled.String():
		who := from
		if who == "" {
			who = "its former owner"
		}
		return Expelled, who + " was expelled: it did not renew its Lease in time, its container was restarted, or " +
			"its Lease was deleted"
	case table.CauseHanded.String():
	default:
		return "", "the reason is no longer known: reports only keep the last few handovers"
	}
	if from == "" {
		return "", "a former owner handed it over"
	}
	was, there := r.memberOf(from)
	self, _ := r.memberOf(to)
	switch {
	case there && was.Drain != nil && (at == nil || at.After(was.Drain.Since)), at != nil && r.drained(from, *at):
		return WasDrained, from + " was drained, and handed it over"
	case there && was.State == Leaving:
		return Left, from + " is leaving, and handed it over"
	case !there && !r.expelled(from):
		return Left, from + " handed it over, and is gone now"
	case at != nil && at.Sub(self.Joined) >= 0 && at.Sub(self.Joined) < joinTime && r.firstOf(to, *at):
		return Joined, fmt.Sprintf("%s had joined %s earlier, and got its share from %s", to,
			ago(at.Sub(self.Joined).Seconds()), from)
	default:
		return Rebalanced, from + " handed it over to rebalance"
	}
}

// drained reports whether a member was drained at that time, from the events of the last hour.
func (r *Rota) drained(id string, at time.Time) (drained bool) {
	for _, e := range r.Notices {
		if e.At.Before(at) && strings.Contains(e.Message, "member "+id+" ") {
			switch e.Reason {
			case "MemberDrained":
				drained = true
			case "MemberUndrained":
				drained = false
			}
		}
	}
	return drained
}

// shareTime is how long it may take until a member has its whole first share, which comes from several members.
const shareTime = 10 * time.Second

// firstOf reports whether a member got its first slots at about that time, from its report.
func (r *Rota) firstOf(id string, at time.Time) bool {
	if report := r.Reports[id]; report != nil {
		for _, h := range report.Handovers {
			if h.Duty == "" && at.Sub(h.Ended) > shareTime {
				return false
			}
		}
	}
	return true
}

func (r *Rota) memberOf(id string) (Member, bool) {
	for _, m := range r.Members {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// expelled reports whether a former member was expelled, as far as the table and the reports show. An ID begins with
// the Pod's name.
func (r *Rota) expelled(id string) bool {
	for _, report := range r.Reports {
		for _, h := range report.Handovers {
			if h.From == id && h.Cause == table.CauseExpelled {
				return true
			}
		}
	}
	for _, e := range r.Table.Expels {
		if strings.HasPrefix(id, e.Pod+"-") {
			return true
		}
	}
	return false
}
