package coverage_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

func TestCompare(t *testing.T) {
	tab := table.New(4, slot.KeyName, 9)
	for _, id := range []string{"a", "b"} {
		tab.Put(table.Member{ID: id, Pod: id, Weight: 1, MinFormat: 1, MaxFormat: 1})
	}
	tab.Runs = []table.Run{
		{Slots: slot.Range{First: 0, Last: 1}, Owner: "a", Epoch: 5},
		{Slots: slot.Range{First: 2, Last: 2}, Owner: "b", Epoch: 6}, {Slots: slot.Range{First: 3, Last: 3}},
	}
	report := func(member string, open ...slot.Slot) *coverage.Report {
		r := &coverage.Report{Member: member, Digests: coverage.Digests{cm: {}}}
		for _, n := range open {
			r.Open.Add(n)
			r.Digests[cm][n] = sharding.Digest{Objects: 2, Hashes: uint64(n)}
		}
		return r
	}
	census := coverage.Digests{cm: {}}
	for n := range slot.Slot(4) {
		census[cm][n] = sharding.Digest{Objects: 2, Hashes: uint64(n)}
	}
	slow := report("b", 2)
	slow.Waiting = map[slot.Slot]time.Duration{2: time.Hour}
	missing := report("a", 0, 1)
	missing.Digests[cm][1] = sharding.Digest{Objects: 1, Hashes: 17}
	another := report("a", 0, 1)
	another.Digests[cm][1] = sharding.Digest{Objects: 2, Hashes: 17}
	blind := report("a", 0, 1)
	blind.Digests = coverage.Digests{}
	free := coverage.Finding{Slot: 3, What: coverage.Unowned}
	for name, test := range map[string]struct {
		reports []*coverage.Report
		want    []coverage.Finding
	}{
		"right": {[]*coverage.Report{report("a", 0, 1), report("b", 2)}, []coverage.Finding{free}},
		"not open": {[]*coverage.Report{report("a", 0), report("b", 2)},
			[]coverage.Finding{{Slot: 1, What: coverage.Unowned, Epoch: 5, Members: "a"}, free}},
		"doubled": {[]*coverage.Report{report("b", 1, 2), report("a", 0, 1)},
			[]coverage.Finding{{Slot: 1, What: coverage.Doubled, Epoch: 5, Members: "a b"}, free}},
		"not in the table": {[]*coverage.Report{report("a", 0, 1), report("b", 2), report("gone", 1, 3)},
			[]coverage.Finding{free}},
		"silent": {[]*coverage.Report{report("b", 2)},
			[]coverage.Finding{{What: coverage.Silent, Members: "a"}, free}},
		"stalled": {[]*coverage.Report{report("a", 0, 1), slow},
			[]coverage.Finding{{Slot: 2, What: coverage.Stalled, Epoch: 6, Members: "b", Waiting: time.Hour}, free}},
		"missing object": {[]*coverage.Report{missing, report("b", 2)}, []coverage.Finding{{
			Slot: 1, What: coverage.Differs, Epoch: 5, Members: "a", Kind: cm, Exist: sharding.Digest{Objects: 2, Hashes: 1},
			Held: sharding.Digest{Objects: 1, Hashes: 17},
		}, free}},
		"another object": {[]*coverage.Report{another, report("b", 2)}, []coverage.Finding{{
			Slot: 1, What: coverage.Differs, Epoch: 5, Members: "a", Kind: cm, Exist: sharding.Digest{Objects: 2, Hashes: 1},
			Held: sharding.Digest{Objects: 2, Hashes: 17},
		}, free}},
		"no informer": {[]*coverage.Report{blind, report("b", 2)}, []coverage.Finding{
			{Slot: 0, What: coverage.Unread, Epoch: 5, Members: "a", Kind: cm, Exist: sharding.Digest{Objects: 2}},
			{Slot: 1, What: coverage.Unread, Epoch: 5, Members: "a", Kind: cm, Exist: sharding.Digest{Objects: 2, Hashes: 1}},
			free,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := coverage.Compare(tab, test.reports, census)
			require.Equal(t, "findings", test.want, got)
		})
	}
}
