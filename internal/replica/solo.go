package replica

import (
	"context"
	"math"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
)

// SoloStore is the store of a rota with a single member: there is no table to watch, and events are dropped. A Solo
// makes no other requests.
type SoloStore struct{ store.Store }

// WatchTable implements store.Store.
func (SoloStore) WatchTable(ctx context.Context, _ func(member.Snapshot, bool)) error {
	<-ctx.Done()
	return ctx.Err()
}

// Notify implements store.Store.
func (SoloStore) Notify(context.Context, member.Notify) {}

// NotifyNow implements store.Store.
func (SoloStore) NotifyNow(context.Context, member.Notify) {}

// Close implements store.Store.
func (SoloStore) Close() {}

var (
	_ Member = (*member.Member)(nil)
	_ Member = (*Solo)(nil)
)

// Solo owns all slots as long as it runs. It replaces a member.Member.
type Solo struct {
	table *table.Table
	begun bool
	// shut holds the slots whose drain has ended.
	shut, all slot.Set
}

// NewSolo returns the member and a table that lists it.
func NewSolo(cfg member.Config, wall time.Time) (*Solo, *table.Table) {
	self := cfg.Self
	self.Joined = wall.Unix()
	t := table.New(cfg.Slots, cfg.Key, uint64(max(1, wall.UnixMilli())))
	t.UID, t.Members = self.ID, []table.Member{self}
	for name := range self.DutyNames() {
		t.Duties = append(t.Duties, name)
	}
	s := &Solo{table: t}
	t.Runs = []table.Run{{Slots: slot.Range{First: 0, Last: slot.Slot(cfg.Slots - 1)}, Owner: self.ID, Epoch: t.Epoch}}
	for n := slot.Slot(cfg.Slots); int(n) < t.Total(); n++ {
		t.Runs = append(t.Runs, table.Run{Slots: slot.Range{First: n, Last: n}, Owner: self.ID, Epoch: t.Epoch})
	}
	s.all.AddRange(slot.Range{First: 0, Last: slot.Slot(t.Total() - 1)})
	return s, t
}

// Wake returns a time that never comes, since a Solo does not depend on time.
func (*Solo) Wake() time.Duration { return math.MaxInt64 / 2 }

// Step loads all slots and opens them, and drains them to leave.
func (s *Solo) Step(_ member.Time, e member.Event) []member.Action {
	switch e := e.(type) {
	case member.Tick:
		if s.begun {
			return nil
		}
		s.begun = true
		duties := map[slot.Slot]string{}
		for i, name := range s.table.Duties {
			duties[slot.Slot(int(s.table.Slots)+i)] = name
		}
		return []member.Action{
			member.Deadline{At: math.MaxInt64 / 2},
			member.AllowLong{Allowed: true},
			member.Load{Slots: s.all, Round: 1, Cause: table.CauseAssigned, Duties: duties},
		}
	case member.Loaded:
		if e.Round != 1 {
			return nil
		}
		return []member.Action{member.Open{Slots: e.Slots, Epoch: s.table.Epoch}}
	case member.Leave:
		return []member.Action{member.Drain{Slots: s.all, Round: 2}}
	case member.Drained:
		if s.shut = s.shut.Union(e.Slots); s.shut == s.all {
			return []member.Action{member.Stop{}}
		}
	}
	return nil
}
