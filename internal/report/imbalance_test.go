package report

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

func TestImbalance(t *testing.T) {
	tab := table.New(8, slot.KeyName, 5)
	for id, weight := range map[string]int{"a": 1, "b": 2, "c": 1} {
		tab.Put(table.Member{ID: id, Pod: id, Weight: weight, MinFormat: 1, MaxFormat: 1, Leaving: id == "c"})
	}
	tab.Runs = []table.Run{{Slots: slot.Range{First: 0, Last: 3}, Owner: "a", Epoch: 1}, {Slots: slot.Range{First: 4, Last: 7}, Owner: "b", Epoch: 1}}
	loaded := func(id string, workers float64) *coverage.Report {
		return &coverage.Report{Member: id, Loads: coverage.LoadsOf(map[slot.Slot]float64{1: workers / 4, 2: workers / 4 * 3})}
	}
	report := func(id string, objects int) *coverage.Report {
		return &coverage.Report{Member: id, Digests: coverage.Digests{schema.GroupKind{Kind: "ConfigMap"}: {3: sharding.Digest{Objects: objects}}}}
	}
	for name, test := range map[string]struct {
		reports []*coverage.Report
		want    Imbalance
	}{
		// 4 and 4 slots, of which b should have twice as many as a: 4 by 8/3.
		"even objects":       {[]*coverage.Report{report("a", 10), report("b", 20), report("c", 99)}, Imbalance{Slots: 1.5, Objects: 1}},
		"all objects at one": {[]*coverage.Report{report("a", 10), report("b", 0)}, Imbalance{Slots: 1.5, Objects: 3}},
		"one is silent":      {[]*coverage.Report{report("a", 10)}, Imbalance{Slots: 1.5}},
		"load":               {[]*coverage.Report{loaded("a", 1), loaded("b", 1), loaded("c", 9)}, Imbalance{Slots: 1.5, Load: 1.5}},
		"load of chance":     {[]*coverage.Report{loaded("a", 0.1), loaded("b", 0.05)}, Imbalance{Slots: 1.5}},
		"load of one is not known": {
			[]*coverage.Report{loaded("a", 1), {Member: "b"}}, Imbalance{Slots: 1.5},
		},
		"no objects": {[]*coverage.Report{report("a", 0), report("b", 0)}, Imbalance{Slots: 1.5}},
	} {
		if got := imbalanceOf(tab, test.reports); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
