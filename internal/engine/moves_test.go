package engine

import (
	"context"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Members report the handovers by which they got their slots and duties: when one joins, leaves and crashes.
func TestHandoversAreReported(t *testing.T) {
	inLab(t, func(l *lab) {
		l.setup = func(m *labMember) {
			if err := m.Duty("mail", func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		a := l.start("a")
		l.wait(time.Minute)
		b := l.start("b")
		l.wait(2 * time.Minute)
		joined := l.handoversOf(b)
		if len(joined) == 0 {
			t.Fatal("b reports no handovers")
		}
		for _, h := range joined {
			if h.From != a.Status().ID || h.Cause != table.CauseHanded || h.Drain <= 0 || time.Since(h.Ended) > 2*time.Minute {
				t.Errorf("b joined, and reports %+v", h)
			}
		}
		if n := slotsOf(joined); n != 128 {
			t.Errorf("b reports %d slots, want half of 256", n)
		}
		first := l.handoversOf(a)
		if n := slotsOf(first); n != 256 || first[len(first)-1].From != "" || first[len(first)-1].Cause != table.CauseAssigned {
			t.Errorf("a was the first, and reports %+v", first)
		}
		id := b.Status().ID
		b.crash()
		l.wait(2 * time.Minute)
		last := l.handoversOf(a)
		if n := slotsOf(last); n != 256+128 || last[0].From != id || last[0].Cause != table.CauseExpelled || last[0].Warm != 0 ||
			last[0].Activate < a.cfg.FenceDelay {
			t.Errorf("b crashed, and a reports %+v", last)
		}
	})
}

// handoversOf returns what a member reports.
func (l *lab) handoversOf(m *labMember) []coverage.Handover {
	l.t.Helper()
	all, err := l.reports.Read(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range all {
		if r.Member == m.Status().ID {
			return r.Handovers
		}
	}
	l.t.Fatalf("no report of %s", m.pod)
	return nil
}

func slotsOf(handovers []coverage.Handover) (n int) {
	for _, h := range handovers {
		if h.Duty == "" {
			n += h.Count
		}
	}
	return n
}
