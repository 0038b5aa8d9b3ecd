package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// An expelled process joins again when nothing of its former incarnation is in flight, and gives up where that takes
// too long.
func TestR13RejoinsWhenNothingIsInFlight(t *testing.T) {
	const s = slot.Slot(3)
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		if !r.idle(t.Context()) {
			t.Error("not idle with nothing in flight")
		}
		r.gate.SetDeadline(r.now() + time.Minute)
		r.gate.Open(slot.SetOf(slot.Range{First: s, Last: s}), 1)
		_, leave, verdict := r.gate.Enter(t.Context(), s, gate.Key{Name: "a"}, false)
		if verdict != gate.Admitted {
			t.Fatal(verdict)
		}
		r.gate.Shut(r.gate.OpenSet())
		begun := time.Now()
		if r.idle(t.Context()) || time.Since(begun) < r.cfg.RenewDeadline {
			t.Errorf("idle, or given up, after %v, while a reconcile is running", time.Since(begun))
		}
		unknown := r.gate.Hold(s) // a write of unknown outcome outlives its reconcile
		time.AfterFunc(time.Second, leave)
		time.AfterFunc(2*time.Second, unknown)
		begun = time.Now()
		if !r.idle(t.Context()) || time.Since(begun) < 2*time.Second {
			t.Errorf("idle after %v, want it to be when the write cannot take effect any more", time.Since(begun))
		}
	})
}
