package replica

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

func TestMailboxMergesWhatCanBeToldAtOnce(t *testing.T) {
	box := newMailbox()
	lease := func(id string) []member.Lease { return []member.Lease{{ID: id, Version: "1"}} }
	box.put(member.LeasesSeen{Watch: 1, Complete: true, Leases: lease("a")})
	box.put(member.LeasesSeen{Watch: 1, Leases: lease("b")})
	box.put(member.LeasesSeen{Watch: 1, Leases: lease("b")}) // a second sign of life
	box.put(member.LeasesSeen{Watch: 1, Gone: []string{"a"}})
	box.put(member.LeasesSeen{Watch: 2, Leases: lease("c")})
	box.put(member.Tick{})
	gone := []table.Gone{{Slot: 4, Kind: "Kind", Name: "a"}}
	box.idle(7, 3, nil)
	box.idle(7, 4, gone)
	<-box.filled
	versions := func(set slot.Set) table.Versions { return table.Versions{"Kind": set.String()} }
	got := box.take(versions)
	want := []member.Event{
		member.LeasesSeen{Watch: 1, Complete: true, Leases: slices.Concat(lease("a"), lease("b"))},
		member.LeasesSeen{Watch: 1, Leases: lease("b")},
		member.LeasesSeen{Watch: 1, Gone: []string{"a"}},
		member.LeasesSeen{Watch: 2, Leases: lease("c")},
		member.Tick{},
		member.Drained{Slots: slot.SetOf(slot.Range{First: 3, Last: 4}), Round: 7, Versions: table.Versions{"Kind": "3-4"},
			Gone: gone},
	}
	require.Equal(t, "actions", want, got, cmp.AllowUnexported(slot.Set{}))
	if more := box.take(versions); more != nil {
		t.Errorf("a second take returned %v", more)
	}
}
