package rota

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/moves"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// handoverBuckets are in seconds: from moves of an idle rota to those that a stuck reconcile holds back.
var handoverBuckets = []float64{0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 120, 600}

func newHandoverMetrics(labels prometheus.Labels) (phase, stall *prometheus.HistogramVec) {
	histogram := func(name, help, by string, values ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, ConstLabels: labels, Buckets: handoverBuckets,
		}, []string{by})
		for _, value := range values {
			h.WithLabelValues(value)
		}
		return h
	}
	phase = histogram("rota_handover_phase_seconds", "How long the phases of handovers to this member took, for each "+
		"slot and duty. warm: from the plan until it held the objects. drain: from then until it owned the slot. activate: "+
		"from then until it worked on it. A phase that did not happen is not counted.",
		"phase", moves.PhaseWarm, moves.PhaseDrain, moves.PhaseActivate)
	stall = histogram("rota_handover_stall_seconds", "For how long nobody worked on the objects of a slot that came to "+
		"this member, as far as the tables tell, by how it came. The last moment of the former owner's drain, and the wait "+
		"until a crashed member was expelled, are not in it.", "cause",
		table.CauseAssigned.String(), table.CauseHanded.String(), table.CauseExpelled.String())
	return phase, stall
}

// landed counts moves that have ended.
func (m *metrics) landed(all []moves.Landed) {
	for _, l := range all {
		for phase, took := range l.Phases() {
			m.phase.WithLabelValues(phase).Observe(took.Seconds())
		}
		m.stall.WithLabelValues(l.Cause.String()).Observe(l.Stall.Seconds())
	}
}

// plans says whether a table plans moves that the one before did not: it gives slots a next owner, or slots of nobody,
// or of a member that is expelled, a new one.
func plans(old, next *table.Table) bool {
	return slices.ContainsFunc(next.Runs, func(r table.Run) bool {
		for s := r.Slots.First; ; s++ {
			before := old.At(s)
			_, stays := next.Member(before.Owner)
			if r.Next != "" && r.Next != before.Next || r.Owner != "" && r.Owner != before.Owner && !stays {
				return true
			}
			if s == r.Slots.Last {
				return false
			}
		}
	})
}

// imbalance is how much more the member with the largest load has than the mean, both divided by the members' weights.
type imbalance struct {
	slots float64
	// objects is 0 if it is not known: a member has not reported, or there are no objects.
	objects float64
}

// imbalanceOf returns the imbalance of the members that stay. Slots without a working owner count for nobody.
func imbalanceOf(t *table.Table, reports []*coverage.Report) imbalance {
	objects := map[string]int{}
	for _, r := range reports {
		n := 0
		for _, digests := range r.Digests {
			for _, d := range digests {
				n += d.Objects
			}
		}
		objects[r.Member] = n
	}
	counts := t.Counts()
	var slots, held ratio
	known := true
	for _, other := range t.Members {
		if other.Leaving || t.Drained(other.ID) {
			continue
		}
		n, reported := objects[other.ID]
		known = known && reported
		slots.add(counts[other.ID], other.Weight)
		held.add(n, other.Weight)
	}
	out := imbalance{slots: slots.value()}
	if known {
		out.objects = held.value()
	}
	return out
}

// ratio is that of the largest share to the mean one.
type ratio struct {
	largest    float64
	all, total float64
}

func (r *ratio) add(n, weight int) {
	r.largest = max(r.largest, float64(n)/float64(max(1, weight)))
	r.all += float64(max(1, weight))
	r.total += float64(n)
}

func (r *ratio) value() float64 {
	if r.total == 0 {
		return 0
	}
	return r.largest * r.all / r.total
}

// oldestMove returns for how long the oldest handover to this member has been under way.
func (r *Rota) oldestMove() time.Duration {
	if i := r.present.Load(); i != nil {
		return i.moves.Oldest(r.now())
	}
	return 0
}

// oldestWaiting returns for how long the oldest key of this member's slots has been waiting for a worker.
func (r *Rota) oldestWaiting() time.Duration {
	since := r.controllers.Oldest()
	open := r.gate.Working()
	longest := time.Duration(0)
	for s, at := range since {
		if open.Has(s) {
			longest = max(longest, r.now()-at)
		}
	}
	return longest
}

// objects returns how many objects of each sharded kind are in the slots on which this member works.
func (r *Rota) objects() map[schema.GroupKind]int {
	out := map[schema.GroupKind]int{}
	for kind, digests := range r.share.Digest(r.hashes(r.gate.Working())) {
		out[kind] = 0
		for _, d := range digests {
			out[kind] += d.Objects
		}
	}
	return out
}
