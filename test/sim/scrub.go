package sim

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/streamtest"
)

// website is the kind of the objects.
var website = schema.GroupKind{Group: "example.com", Kind: "Website"}

// scrubs compares now and then what members hold with the table and the objects there are (rule R14), by package
// coverage.
func (w *World) scrubs() {
	var cfg member.Config
	cfg.SetDefaults()
	tracker := coverage.NewTracker(coverage.BoundsOf(cfg.LeaseDuration, cfg.FenceDelay))
	serial := uint64(0)
	var look func()
	look = func() {
		serial++
		for _, n := range w.Live() {
			n.informer.checkReached()
		}
		if t := w.Objects.Table().Table; t != nil && t.UID == w.Objects.Table().UID {
			w.Coverage.Rules[14] += len(tracker.Look(w.now, t, w.reports(serial), w.census(t)))
		}
		w.after(8*time.Second, look)
	}
	w.after(8*time.Second, look)
}

// reports are what members would say of themselves at this moment.
func (w *World) reports(serial uint64) []*coverage.Report {
	var out []*coverage.Report
	for _, n := range w.Live() {
		held := map[slot.Slot]sharding.Digest{}
		for _, s := range n.informer.wanted.Slots() {
			held[s] = sharding.Digest{}
		}
		for _, is := range n.informer.Has {
			count(held, is)
		}
		open, _ := w.split(n.Open())
		out = append(out, &coverage.Report{
			Member: n.ID, Serial: serial, Open: open, Digests: coverage.Digests{website: held},
		})
	}
	return out
}

func (w *World) census(t *table.Table) coverage.Digests {
	census := map[slot.Slot]sharding.Digest{}
	for s := range slot.Slot(t.Slots) {
		census[s] = sharding.Digest{}
	}
	for name := range w.objects.history {
		count(census, w.objects.state(name))
	}
	return coverage.Digests{website: census}
}

// count adds an object to the digest of its slot.
func count(digests map[slot.Slot]sharding.Digest, is streamtest.State) {
	if d, ok := digests[is.Slot]; ok && is.Exists && is.In {
		digests[is.Slot] = sharding.Digest{Objects: d.Objects + 1, Hashes: d.Hashes ^ (uint64(is.UID) + 1)}
	}
}

// incomplete says what is missing of a life in which all else is well; empty: nothing.
func (w *World) incomplete() string {
	if !w.wild {
		return ""
	}
	t := w.Objects.Table().Table
	for _, f := range coverage.Compare(t, w.reports(1), w.census(t)) {
		return f.String()
	}
	return w.missed()
}
