package sim

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// website is the kind of the objects.
var website = schema.GroupKind{Group: "example.com", Kind: "Website"}

// scrubs compares now and then what members hold with the table and the objects there are (rule R14), by package coverage.
func (w *World) scrubs() {
	w.after(8*time.Second, func() {
		if t := w.Objects.Table().Table; t != nil && t.UID == w.Objects.Table().UID {
			w.Coverage.Rules[14] += len(w.scrub.Confirm(w.findings(t)))
		}
		w.scrubs()
	})
}

// findings are what is wrong at this moment.
func (w *World) findings(t *table.Table) []coverage.Finding {
	census := map[slot.Slot]delivery.Digest{}
	for s := range slot.Slot(t.Slots) {
		census[s] = digest(s)
	}
	var reports []*coverage.Report
	for _, n := range w.Live() {
		held := map[slot.Slot]delivery.Digest{}
		for _, s := range n.informer.held.Slots() {
			held[s] = digest(s)
		}
		reports = append(reports, &coverage.Report{Member: n.ID, Open: n.Open(), Digests: coverage.Digests{website: held}})
	}
	return coverage.Compare(t, reports, coverage.Digests{website: census})
}

// digest is that of all objects of a slot.
func digest(s slot.Slot) delivery.Digest {
	d := delivery.Digest{Objects: keysPerSlot}
	for i := range keysPerSlot {
		d.Hashes ^= uint64(key{s, i}.index()) + 1
	}
	return d
}

// incomplete says what is missing of a deep world in which all else is well; empty: nothing.
func (w *World) incomplete() string {
	if !w.deep {
		return ""
	}
	for _, f := range w.findings(w.Objects.Table().Table) {
		return f.String()
	}
	return w.missed()
}
