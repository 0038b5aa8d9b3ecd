package explore

import (
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/table"
)

func dur(n int) time.Duration { return time.Duration(n) }

// ago prints a time of the normal form.
func ago(t time.Duration) string {
	if t == 0 {
		return "never"
	}
	return fmt.Sprintf("%+d", int(t)-base)
}

// describe makes one line of an event or an action.
func describe(what any) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", what), "member.")
	switch e := what.(type) {
	case member.Renewed:
		return fmt.Sprintf("%s %s version=%s open=%v sent=%s", name, e.Outcome, e.Lease.Version, e.Lease.Open, ago(e.Start))
	case member.TableSeen:
		return fmt.Sprintf("%s %s consistent=%v", name, summary(e.Snapshot), e.Consistent)
	case member.Swapped:
		return fmt.Sprintf("%s %s %s", name, e.Outcome, summary(e.Snapshot))
	case member.LeasesSeen:
		var b strings.Builder
		for _, l := range e.Leases {
			fmt.Fprintf(&b, " %s@%s open=%v epoch=%d", l.ID, l.Version, l.Open, l.Epoch)
		}
		return fmt.Sprintf("%s complete=%v%s gone=%v", name, e.Complete, b.String(), e.Gone)
	case member.CreateLease:
		return fmt.Sprintf("%s open=%v", name, e.Lease.Open)
	case member.RenewLease:
		return fmt.Sprintf("%s open=%v epoch=%d", name, e.Lease.Open, e.Lease.Epoch)
	case member.CreateTable:
		return fmt.Sprintf("%s %s", name, runs(e.Table))
	case member.Swap:
		return fmt.Sprintf("%s of %s: %s", name, e.Version, runs(e.Table))
	case member.WatchLeases:
		return fmt.Sprintf("%s all=%v %v", name, e.All, e.IDs)
	case member.Deadline:
		return fmt.Sprintf("%s %s", name, ago(e.At))
	case member.Drained:
		return fmt.Sprintf("%s %v", name, e.Slots)
	case member.Load:
		return fmt.Sprintf("%s %v %v held=%v", name, e.Slots, e.Cause, e.Held)
	default:
		return strings.TrimSpace(fmt.Sprintf("%s %+v", name, what))
	}
}

func summary(s member.Snapshot) string {
	if s.Missing() {
		return "missing@" + s.Version
	}
	return fmt.Sprintf("%s@%s epoch=%d", s.UID, s.Version, s.Table.Epoch)
}

// runs prints who owns what, in one line.
func runs(t *table.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch=%d uid=%s members=", t.Epoch, t.UID)
	for _, m := range t.Members {
		b.WriteString(m.ID)
		if m.Leaving {
			b.WriteString("(leaving)")
		}
		b.WriteByte(',')
	}
	text := table.Encode(t)
	b.WriteString(" runs=" + strings.ReplaceAll(strings.TrimSpace(text["runs"]), "\n", "; "))
	b.WriteString(" notes=" + strings.ReplaceAll(strings.TrimSpace(text["notes"]), "\n", "; "))
	return b.String()
}
