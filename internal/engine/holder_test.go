package engine

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Members to which slots are on their way list in the order of their IDs.
func TestReceiversAhead(t *testing.T) {
	hash, duties := slot.Range{First: 8, Last: 9}, dutySlots(256)
	for name, c := range map[string]struct {
		next  string
		ready bool
		slots slot.Set
		want  int
	}{
		"slots that stay":            {next: "", slots: slot.SetOf(hash), want: 0},
		"a member before this one":   {next: "a", slots: slot.SetOf(hash), want: 1},
		"this one":                   {next: "b", slots: slot.SetOf(hash), want: 0},
		"a member after it":          {next: "c", slots: slot.SetOf(hash), want: 0},
		"one that has their objects": {next: "a", ready: true, slots: slot.SetOf(hash), want: 0},
		"a duty, which has none":     {next: "a", slots: duties, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRota(t)
			r.state.Begin("b", time.Second)
			if got := r.receiversAhead(); got != 0 {
				t.Errorf("%d before a table was seen", got)
			}
			seen := table.New(256, slot.KeyName, 1)
			seen.Update(c.slots, func(run *table.Run) { run.Owner, run.Next, run.Ready = "d", c.next, c.ready })
			r.state.See(member.Snapshot{Version: "1", UID: "u", Table: seen})
			if got := r.receiversAhead(); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
