package engine

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/moves"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// metrics are the metrics of Collector: counters and histograms, which are kept, and gauges, which are computed at each
// scrape.
type metrics struct {
	rota    *Engine
	labels  prometheus.Labels
	kept    []prometheus.Collector
	sampled []sampled

	verdicts, swaps, renewals, events, plans, dropped *prometheus.CounterVec
	forwarded, eventsForwarded                        *prometheus.CounterVec
	rejoins, abandoned, inherited, late, fenced       prometheus.Counter
	phase, stall                                      *prometheus.HistogramVec
}

func newMetrics(r *Engine) *metrics {
	m := &metrics{rota: r, labels: prometheus.Labels{"rota": r.Name().String()}}
	m.events = m.counters("rota_events_total",
		"Events of this member, by reason, including those that could not be sent.", "reason")
	m.verdicts = m.counters("rota_gate_verdicts_total", "Keys at the gate, by verdict: admitted, refused, "+
		"parked, or expired.", "verdict")
	m.swaps = m.counters("rota_table_swaps_total", "Changes of the table that this member sent, by outcome: done, "+
		"conflict, missing, failed, or unknown.", "outcome")
	m.renewals = m.counters("rota_lease_renewals_total", "Renewals of this member's Lease, by outcome.", "outcome")
	m.plans = m.counters("rota_plans_total", "Changes of the table in which this member planned moves or took "+
		"slots from dead members, by outcome.", "outcome")
	m.rejoins = m.counter("rota_rejoins_total", "Times that this process was expelled and joined again.")
	m.abandoned = m.counter("rota_deletions_abandoned_total", "Slots given up with unreconciled deletions that "+
		"no next owner learns of (the log names them): the last member leaves, a member's build cannot read them, "+
		"there are too many, or the next owner has no controller for the kind.")
	m.inherited = m.counter("rota_deletions_inherited_total", "Unreconciled deletions that former owners of "+
		"slots passed to this member.")
	m.late = m.counter("rota_write_timeouts_total", "Writes in reconciles that the API server did not decide in "+
		"time or did not answer: it or admission webhooks are slow.")
	m.dropped = m.counters("rota_events_dropped_total", "Events of a source.Channel about other members' "+
		"objects that were not forwarded. No other member gets them unless the program sends them to all.", "controller")
	m.eventsForwarded = m.counters("rota_events_forwarded_total", "Events of a source.Channel about other members' "+
		"objects that this member forwarded to their owners. Only with Options.Address.", "controller")
	m.forwarded = m.counters("rota_forward_requests_total", "Requests to handlers of Rota.Forward, by outcome: served "+
		"here, forwarded to the owner, unowned (no member could serve it, answered with 503), or broken (the connection to "+
		"the owner broke, answered with 502).", "outcome")
	m.fenced = m.counter("rota_fence_rejections_total", "Writes of this process that a fence refused.")
	m.phase = m.histogram("rota_handover_phase_seconds", "Duration of the phases of handovers to this member, "+
		"for each slot and duty. warm: from the plan until it held the objects; drain: until it owned the slot; "+
		"activate: until it worked on it.",
		"phase", moves.PhaseWarm, moves.PhaseDrain, moves.PhaseActivate)
	m.stall = m.histogram("rota_handover_stall_seconds", "Time that no member worked on a slot that came to this "+
		"one, by how it came, according to the tables: without the end of the former owner's drain, and without the "+
		"wait for an expel.", "cause",
		table.CauseAssigned.String(), table.CauseHanded.String(), table.CauseExpelled.String())
	// A counter that appears with its first event would not count as an increase.
	for _, o := range []member.Outcome{member.OutcomeDone, member.OutcomeConflict, member.OutcomeMissing,
		member.OutcomeFailed, member.OutcomeUnknown} {
		m.plans.WithLabelValues(o.String())
	}
	for _, reason := range reasons() {
		m.events.WithLabelValues(reason)
	}
	m.declareTable()
	m.declareWork()
	m.declareDuties()
	m.declareReports()
	m.declareDelivery()
	return m
}

func (m *metrics) counters(name, help, by string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: m.labels}, []string{by})
	m.kept = append(m.kept, c)
	return c
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: m.labels})
	m.kept = append(m.kept, c)
	return c
}

// handoverBuckets are in seconds, from moves of an idle rota to moves held back by a stuck reconcile.
var handoverBuckets = []float64{0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 120, 600}

func (m *metrics) histogram(name, help, by string, values ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: m.labels, Buckets: handoverBuckets,
	}, []string{by})
	for _, value := range values {
		h.WithLabelValues(value)
	}
	m.kept = append(m.kept, h)
	return h
}

// reasons returns the reasons of all events that members send, as used in events and in rota_events_total.
func reasons() []string {
	return []string{
		"CanaryBack", "CanaryBegins", "CanaryDone", "CanaryPromoted", "CanarySteps", "ClockSkew", "Coverage",
		"CutShort", "DutiesSuspended", "DutyFails", "DutyWorks",
		"Elected", "Expelled", "GroupsDiffer", "HotSlot", "IdentityInUse", "InvalidTable", "KindNotServed", "KindRefused",
		"KindServed", "LabelsAccepted", "LabelsRefused", "Lapsed",
		"Leaving", "LoadsNotEven", "NoRoom",
		"NotElected", "NotJoining", "OrdersEnded", "PermissionMissing", "PinUnmet",
		"ReconcilePanicked", "ReconcilesFail", "ReconcilesSucceed", "Resumed", "SetupDiffers", "SlotHeldBack", "TableCut",
		"TableInvalid", "TableLarge", "TableLost", "TableValid",
	}
}

// Collector implements rota.Rota.Collector.
func (r *Engine) Collector() prometheus.Collector { return r.metrics }

func (m *metrics) verdict(v gate.Verdict)   { m.verdicts.WithLabelValues(v.String()).Inc() }
func (m *metrics) drop(controller string)   { m.dropped.WithLabelValues(controller).Inc() }
func (m *metrics) swap(o member.Outcome)    { m.swaps.WithLabelValues(o.String()).Inc() }
func (m *metrics) event(reason string)      { m.events.WithLabelValues(reason).Inc() }
func (m *metrics) renewed(o member.Outcome) { m.renewals.WithLabelValues(o.String()).Inc() }

// landed records moves that have ended.
func (m *metrics) landed(all []moves.Landed) {
	for _, l := range all {
		for phase, took := range l.Phases() {
			m.phase.WithLabelValues(phase).Observe(took.Seconds())
		}
		m.stall.WithLabelValues(l.Cause.String()).Observe(l.Stall.Seconds())
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.kept {
		c.Describe(out)
	}
	for _, s := range m.sampled {
		out <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.kept {
		c.Collect(out)
	}
	now := sample{m.rota.Status(), m.rota, m.rota.tableOf()}
	for _, s := range m.sampled {
		s.take(now, func(v float64, by ...string) { out <- prometheus.MustNewConstMetric(s.desc, s.kind, v, by...) })
	}
}

var _ prometheus.Collector = (*metrics)(nil)

// noTable stands for the table while there is none. It is made once, since each key asks for the table.
var noTable = &table.Table{}

// tableOf returns the table, empty if there is none. It must not be changed.
func (r *Engine) tableOf() *table.Table {
	if t := r.state.Table(); t != nil {
		return t
	}
	return noTable
}

// oldestMove returns the age of the oldest handover to this member that is under way.
func (r *Engine) oldestMove() time.Duration {
	if i := r.present.Load(); i != nil {
		return i.moves.Oldest(r.now())
	}
	return 0
}

// oldestWaiting returns how long the oldest key in this member's slots has been waiting for a worker.
func (r *Engine) oldestWaiting() time.Duration {
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

// loads returns how many workers the keys of each hash slot keep busy. It leaves out slots below 0.001.
func (r *Engine) loads() map[slot.Slot]float64 {
	out, hashes := r.gate.Loads(), r.cfg.Slots.All()
	maps.DeleteFunc(out, func(s slot.Slot, _ float64) bool { return !hashes.Has(s) })
	return out
}

// load returns how many workers the keys of all hash slots keep busy, and how many the hottest slot does.
func (r *Engine) load() (all, hottest float64) {
	for _, workers := range r.loads() {
		all, hottest = all+workers, max(hottest, workers)
	}
	return all, hottest
}

// objects returns how many objects of each sharded kind are in the slots on which this member works.
func (r *Engine) objects() map[schema.GroupKind]int {
	out := map[schema.GroupKind]int{}
	for kind, digests := range r.share.Digest(r.hashes(r.gate.Working())) {
		out[kind] = 0
		for _, d := range digests {
			out[kind] += d.Objects
		}
	}
	return out
}
