package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Many members that got slots at the same time do not all say at the same time that they are active.
func TestR3CrowdsSettleOneAfterTheOther(t *testing.T) {
	delays := map[time.Duration]bool{}
	for i := range 300 {
		p := newProposer(View{
			Config: &Config{Self: table.Member{ID: fmt.Sprintf("m-%d", i)}, SettleDelay: 2 * time.Second},
			Table:  table.New(4096, slot.KeyName, 1),
		})
		for k := range 300 {
			p.Table.Put(table.Member{ID: fmt.Sprintf("m-%d", k), Weight: 1})
			if n := k + 1; n <= 100 && p.settleDelay() != p.SettleDelay {
				t.Fatalf("%d members: after %v, want %v", n, p.settleDelay(), p.SettleDelay)
			}
		}
		d := p.settleDelay()
		if d < p.SettleDelay || d >= 4*p.SettleDelay {
			t.Errorf("300 members: after %v, want from %v to four times that", d, p.SettleDelay)
		}
		delays[d.Truncate(100*time.Millisecond)] = true
	}
	if len(delays) < 50 {
		t.Errorf("300 members settle at %d different tenths of a second, of 60", len(delays))
	}
}
