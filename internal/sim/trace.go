package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/table"
)

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }

// describe makes one line of an event or an action.
func describe(what any) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", what), "member.")
	switch x := what.(type) {
	case member.Renewed:
		return fmt.Sprintf("%s %s open=%v start=%v", name, outcome(x.Outcome), x.Lease.Open, x.Start)
	case member.TableSeen:
		return fmt.Sprintf("%s %s consistent=%v", name, summary(x.Snapshot), x.Consistent)
	case member.Swapped:
		return fmt.Sprintf("%s %s %s", name, outcome(x.Outcome), summary(x.Snapshot))
	case member.LeasesSeen:
		var b strings.Builder
		for _, l := range x.Leases {
			fmt.Fprintf(&b, " %s@%s open=%v epoch=%d", l.ID, l.Version, l.Open, l.Epoch)
		}
		return fmt.Sprintf("%s complete=%v%s gone=%v", name, x.Complete, b.String(), x.Gone)
	case member.LeaseDeleted:
		return fmt.Sprintf("%s %s %s", name, x.ID, outcome(x.Outcome))
	case member.CreateLease:
		return fmt.Sprintf("%s open=%v", name, x.Lease.Open)
	case member.RenewLease:
		return fmt.Sprintf("%s open=%v epoch=%d timeout=%v", name, x.Lease.Open, x.Lease.Epoch, x.Timeout)
	case member.CreateTable:
		return fmt.Sprintf("%s epoch=%d", name, x.Table.Epoch)
	case member.Swap:
		return fmt.Sprintf("%s on %s: %s", name, x.Version, runs(x.Table))
	case member.WatchLeases:
		return fmt.Sprintf("%s all=%v %v", name, x.All, x.IDs)
	case member.Open:
		return fmt.Sprintf("%s %v epoch=%d", name, x.Slots, x.Epoch)
	case member.Load:
		return fmt.Sprintf("%s %v %v held=%v %v gone=%v", name, x.Slots, x.Cause, x.Held, x.Versions, x.Gone)
	case member.Hold:
		return fmt.Sprintf("%s %v", name, x.Slots)
	case member.Warm:
		return fmt.Sprintf("%s %v", name, x.Slots)
	case member.Drain:
		return fmt.Sprintf("%s %v room=%d", name, x.Slots, x.Room)
	case member.Shut:
		return fmt.Sprintf("%s %v", name, x.Slots)
	case member.Release:
		return fmt.Sprintf("%s %v", name, x.Slots)
	case member.Warmed:
		return fmt.Sprintf("%s %v", name, x.Slots)
	case member.Drained:
		return fmt.Sprintf("%s %v %v gone=%v", name, x.Slots, x.Versions, x.Gone)
	case member.Loaded:
		return fmt.Sprintf("%s %v", name, x.Slots)
	case member.Notify:
		return fmt.Sprintf("%s %s: %s", name, x.Reason, x.Message)
	default:
		return fmt.Sprintf("%s %+v", name, what)
	}
}

func outcome(o member.Outcome) string {
	return [...]string{"unknown", "done", "conflict", "missing", "failed"}[o]
}

func summary(s member.Snapshot) string {
	switch {
	case s.Missing():
		return "missing@" + s.Version
	case s.Err != nil:
		return fmt.Sprintf("%s@%s %v", s.UID, s.Version, s.Err)
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

func (w *World) logTable(c store.Change) {
	if w.opts.Trace != nil {
		w.logf("table %s@%s %s", c.Table.UID, c.Table.Version, runs(c.Table.Table))
	}
}
