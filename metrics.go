package rota

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// metrics are the metrics of Collector.
type metrics struct {
	rota  *Rota
	descs []*prometheus.Desc // of all gauges below

	verdicts, swaps, renewals, events *prometheus.CounterVec
	rejoins, abandoned, inherited     prometheus.Counter
	late, fenced                      prometheus.Counter
	plans                             *prometheus.CounterVec
	phase, stall                      *prometheus.HistogramVec

	slots, epoch, tableBytes, members, inFlight, goFunctions, parked, untilDeadline, stuck, longest *prometheus.Desc
	received, foreign, ignored, labelled, unlabelled                                                *prometheus.Desc
	findings, scrubs, failing, refused, lacking                                                     *prometheus.Desc
	duties, dutyOwned, dutyRestarts, dutyFailing                                                    *prometheus.Desc
	present, reportAge, reportSize, reportFold, conflicts                                           *prometheus.Desc
	elected                                                                                         *prometheus.Desc
	oldestMove, oldestKey, imbalance, objects                                                       *prometheus.Desc
	paused, drained                                                                                 *prometheus.Desc
}

func newMetrics(r *Rota) *metrics {
	labels := prometheus.Labels{"rota": r.Name().String()}
	counter := func(name, help string, by string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, []string{by})
	}
	var descs []*prometheus.Desc
	desc := func(name, help string, by ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, by, labels)
		descs = append(descs, d)
		return d
	}
	m := &metrics{
		rota: r,
		events: counter("rota_events_total",
			"Events of this member, by reason; those that could not be sent are among them.", "reason"),
		verdicts: counter("rota_gate_verdicts_total", "Keys that came to the gate, by what became of them: admitted, "+
			"refused, parked, or expired.", "verdict"),
		swaps: counter("rota_table_swaps_total", "Changes of the table that this member sent, by outcome: "+
			"done, conflict, missing, failed, or unknown.", "outcome"),
		renewals: counter("rota_lease_renewals_total", "Renewals of this member's Lease, by outcome.", "outcome"),
		rejoins: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rota_rejoins_total", Help: "How often this process was expelled and joined again.", ConstLabels: labels,
		}),
		abandoned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rota_deletions_abandoned_total", Help: "Slots given up with deletions that were not reconciled and that no " +
				"next owner was told of. The log names them. Reasons: the last member leaves; a member's build cannot read " +
				"them; there are too many; the next owner has no controller for the kind.", ConstLabels: labels,
		}),
		inherited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rota_deletions_inherited_total", Help: "Deletions that former owners of slots left to this member, " +
				"because no worker had come to them.",
			ConstLabels: labels,
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rota_write_timeouts_total", Help: "Writes in reconciles that the API server did not decide within " +
				"WriteTimeout, or did not answer: admission webhooks or the API server are slow.",
			ConstLabels: labels,
		}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rota_fence_rejections_total", Help: "Writes of this process that a fence refused.", ConstLabels: labels,
		}),
		plans: counter("rota_plans_total", "Changes of the table by which this member planned moves or took slots from dead "+
			"members, by outcome.", "outcome"),
		paused: desc("rota_moves_paused",
			"1 while people have moves between live members paused (rota pause), else 0."),
		drained: desc("rota_members_drained", "Members that people want to have no slots (rota drain)."),
		oldestMove: desc("rota_handover_oldest_seconds",
			"For how long the oldest handover to this member has been under way; 0 if there is none."),
		oldestKey: desc("rota_oldest_waiting_seconds",
			"For how long the oldest key of this member has been waiting for a worker; 0 if none waits."),
		imbalance: desc("rota_imbalance_ratio", "Load of the member that has most, divided by the mean, by what is counted: "+
			"slots, or objects as members report them. Weights are accounted for. 1 is even. Only the member that compares "+
			"has the metric, and only if something is known to count.", "of"),
		objects: desc("rota_objects", "Objects of sharded kinds in the slots on which this member works.", "kind"),
		slots: desc("rota_slots",
			"Slots of this member: owned, open, coming, going. Slots of the whole rota: unowned, all. Without a table all are "+
				"unowned.", "state"),
		epoch: desc("rota_table_epoch", "Epoch of the table; 0 without a table."),
		tableBytes: desc("rota_table_bytes",
			"Size of the table as text, of at most 983,040 bytes. Above 737,280 there is the event TableLarge."),
		elected: desc("rota_elected", "1: the rota holds leader election's Lease, so this member works. 0: it works on "+
			"nothing, because another one holds it. Only with Options.LeaderElectionID."),
		members:  desc("rota_members", "Members in the table; 0 without a table."),
		inFlight: desc("rota_in_flight", "Reconciles and writes of unknown outcome in flight."),
		goFunctions: desc("rota_go_functions", "Functions of rota.Go: those that run, and those that have to end and have "+
			"not returned yet.", "state"),
		parked: desc("rota_parked_keys", "Keys that wait for their slot to stay or go."),
		stuck: desc("rota_stuck_reconciles",
			"Reconciles that have been in flight for more than 10 s, and functions of rota.Go that have not returned within 10 "+
				"s. Each holds its slot back if that is to move."),
		longest: desc("rota_longest_reconcile_seconds",
			"For how long the oldest reconcile has been in flight; 0 if none has been for more than 10 s."),
		received: desc("rota_delivery_objects_received_total",
			"Objects of sharded kinds that came from the API server, in lists and events.", "kind"),
		foreign: desc("rota_delivery_objects_foreign_total", "Objects that came although they were not asked for: the API "+
			"server ignores the shard selector, or they are mislabelled.", "kind"),
		ignored: desc("rota_delivery_selector_ignored", "1 where the API server ignored the shard selector the last "+
			"time it sent objects of the kind, else 0; only with ShardSelector.", "kind"),
		refused: desc("rota_delivery_failing_seconds",
			"For how long an informer's list, watch or look-up has failed; 0 if the last one succeeded. The log has the error.",
			"kind", "request"),
		lacking: desc("rota_delivery_slots_lacking",
			"Slots that were opened although the kind cannot be listed. Controllers that need it do not work on them.", "kind"),
		labelled: desc("rota_labels_written_total", "Labels by which objects are delivered that this member wrote.",
			"kind"),
		unlabelled: desc("rota_label_failures_total", "Attempts to write a label by which objects are delivered that "+
			"failed, by reason.", "kind", "reason"),
		findings: desc("rota_coverage_findings", "Findings of the last comparison of what members hold with what there "+
			"is, by kind of finding. One member compares, and only that one has the metric.", "what"),
		present: desc("rota_table_present",
			"1: there is a table. 0: there is none, because it was deleted or no member has made one yet. Absent before the "+
				"member has looked."),
		reportAge: desc("rota_report_age_seconds",
			"Time since this member last reported what it holds, or since it began to try."),
		reportSize: desc("rota_report_bytes",
			"Size of the report in which this member says what it holds; it is kept below 230 KiB."),
		reportFold: desc("rota_report_slots_per_digest",
			"How many slots share one digest in the report. More than 1: there are too many kinds and slots for a digest each."),
		conflicts: desc("rota_join_conflicts", "Kinds and options because of which this process does not join: it cannot "+
			"work together with members that are working. Else 0."),
		scrubs: desc("rota_coverage_scrubs_total",
			"Comparisons of what members hold with what there is that this member made."),
		failing: desc("rota_controller_failing",
			"1 while all reconciles of the controller on this member fail, as in the event ReconcilesFail; else 0.",
			"controller"),
		duties: desc("rota_duties", "Duties that this member has, without the rota's own (rota.dev/…)."),
		dutyOwned: desc("rota_duty_owned",
			"1 on the member that has the duty, 0 on the others that can do it.", "duty"),
		dutyRestarts: desc("rota_duty_restarts_total",
			"How often the duty was started again on this member after it had failed.", "duty"),
		dutyFailing: desc("rota_duty_failing",
			"1 while the duty keeps failing on this member, as in the event DutyFails; else 0.", "duty"),
		untilDeadline: desc("rota_seconds_until_deadline", "Time left until this member stops unless it renews its Lease. "+
			"Negative after it stopped; absent before the first renewal."),
	}
	m.descs = descs
	m.phase, m.stall = newHandoverMetrics(labels)
	for _, o := range []member.Outcome{member.OutcomeDone, member.OutcomeConflict, member.OutcomeMissing,
		member.OutcomeFailed, member.OutcomeUnknown} {
		m.plans.WithLabelValues(o.String())
	}
	// A counter that appears with its first event would not count as an increase.
	for _, reason := range reasons() {
		m.events.WithLabelValues(reason)
	}
	return m
}

// reasons returns the reasons of all events that members send, as they stand in the events and in rota_events_total.
func reasons() []string {
	return []string{
		"ClockSkew", "Coverage", "DutiesSuspended", "DutyFails", "DutyWorks",
		"Elected", "Expelled", "GroupsDiffer", "IdentityInUse", "InvalidTable", "KindNotServed", "Lapsed", "Leaving",
		"NotElected", "NotJoining", "OrdersEnded", "PermissionMissing",
		"ReconcilePanicked", "ReconcilesFail", "ReconcilesSucceed", "Resumed", "SetupDiffers", "SlotHeldBack", "TableCut",
		"TableInvalid", "TableLarge", "TableLost", "TableValid",
	}
}

// Collector returns the metrics of this member for a Prometheus registry. ctrlrt registers it with
// controller-runtime's.
func (r *Rota) Collector() prometheus.Collector { return r.metrics }

func (m *metrics) verdict(v gate.Verdict)   { m.verdicts.WithLabelValues(v.String()).Inc() }
func (m *metrics) swap(o member.Outcome)    { m.swaps.WithLabelValues(o.String()).Inc() }
func (m *metrics) told(reason string)       { m.events.WithLabelValues(reason).Inc() }
func (m *metrics) renewed(o member.Outcome) { m.renewals.WithLabelValues(o.String()).Inc() }

func (m *metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.verdicts, m.swaps, m.plans, m.renewals, m.events, m.rejoins, m.abandoned, m.inherited,
		m.late, m.fenced, m.phase, m.stall}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.vectors() {
		c.Describe(out)
	}
	for _, d := range m.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.vectors() {
		c.Collect(out)
	}
	gauge := func(d *prometheus.Desc, v float64, by ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, by...)
	}
	s := m.rota.Status()
	gauge(m.slots, float64(s.Owned.Len()), "owned")
	gauge(m.slots, float64(s.Open.Len()), "open")
	gauge(m.slots, float64(s.Coming.Len()), "coming")
	gauge(m.slots, float64(s.Going.Len()), "going")
	gauge(m.slots, float64(s.Unowned.Len()), "unowned")
	gauge(m.slots, float64(m.rota.cfg.Slots), "all")
	gauge(m.epoch, float64(s.Epoch))
	gauge(m.tableBytes, float64(m.rota.tableOf().Size(1)))
	gauge(m.members, float64(s.Members))
	m.collectOrders(gauge, s)
	running, ending := m.rota.gate.Tasks()
	gauge(m.inFlight, float64(m.rota.inFlight()-ending)) // it says how busy the workers are
	gauge(m.goFunctions, float64(running), "running")
	gauge(m.goFunctions, float64(ending), "ending")
	gauge(m.parked, float64(m.rota.gate.Parked()))
	gauge(m.stuck, float64(len(s.Stuck)))
	longest := time.Duration(0)
	for _, f := range s.Stuck {
		longest = max(longest, f.For)
	}
	gauge(m.longest, longest.Seconds())
	if _, own, renewed := m.rota.state.Deadline(); renewed { // not negative because another one leads
		gauge(m.untilDeadline, (own - m.rota.clock.Late()).Seconds())
	}
	if s.TableGone {
		gauge(m.present, 0)
	} else if s.Epoch > 0 {
		gauge(m.present, 1)
	}
	if m.rota.opts.LeaderElectionID != "" && s.ID != "" {
		holds := 1.0
		if s.Waiting != "" {
			holds = 0
		}
		gauge(m.elected, holds)
	}
	gauge(m.conflicts, float64(len(m.rota.unlike.texts())))
	gauge(m.oldestMove, m.rota.oldestMove().Seconds())
	gauge(m.oldestKey, m.rota.oldestWaiting().Seconds())
	for kind, n := range m.rota.objects() {
		gauge(m.objects, float64(n), kind.String())
	}
	if at, bytes, fold := m.rota.published.get(); fold > 0 {
		gauge(m.reportAge, (m.rota.now() - at).Seconds())
		gauge(m.reportSize, float64(bytes))
		gauge(m.reportFold, float64(fold))
	}
	for _, c := range m.rota.controllers.All() {
		v := 0.0
		if _, failing := c.Failing(); failing {
			v = 1
		}
		gauge(m.failing, v, c.Name)
	}
	m.collectDuties(out, s)
	m.collectDelivery(out)
}

// collectOrders shows what people have asked for. Without a table nobody has.
func (m *metrics) collectOrders(gauge func(*prometheus.Desc, float64, ...string), s Status) {
	paused, drained := 0.0, 0
	if t := m.rota.tableOf(); !s.TableGone {
		if t.Paused() {
			paused = 1
		}
		drained = len(t.Drains)
	}
	gauge(m.paused, paused)
	gauge(m.drained, float64(drained))
}

func (m *metrics) collectDuties(out chan<- prometheus.Metric, s Status) {
	failing := map[string]bool{}
	for _, f := range s.Failing {
		failing[f.Duty] = true
	}
	gauge := func(d *prometheus.Desc, on bool, duty string) {
		v := 0.0
		if on {
			v = 1
		}
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, duty)
	}
	owned := 0
	for _, d := range s.Duties {
		if !d.Declared {
			continue
		}
		own := s.ID != "" && d.Owner == s.ID
		if own && !table.OwnDuty(d.Name) {
			owned++
		}
		gauge(m.dutyOwned, own, d.Name)
		gauge(m.dutyFailing, failing[d.Name], d.Name)
		out <- prometheus.MustNewConstMetric(m.dutyRestarts, prometheus.CounterValue, float64(d.Restarts), d.Name)
	}
	out <- prometheus.MustNewConstMetric(m.duties, prometheus.GaugeValue, float64(owned))
}

func (m *metrics) collectDelivery(out chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, by ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), by...)
	}
	findings, scrubs, on := m.rota.scrubbed.get()
	count(m.scrubs, scrubs)
	if on {
		byWhat := map[coverage.What]int{}
		for _, f := range findings {
			byWhat[f.What]++
		}
		for _, what := range coverage.Whats() {
			out <- prometheus.MustNewConstMetric(m.findings, prometheus.GaugeValue, float64(byWhat[what]), what.String())
		}
		load := m.rota.scrubbed.load()
		for of, v := range map[string]float64{"slots": load.slots, "objects": load.objects} {
			if v > 0 {
				out <- prometheus.MustNewConstMetric(m.imbalance, prometheus.GaugeValue, v, of)
			}
		}
	}
	for kind, t := range m.rota.share.Traffic() {
		count(m.received, t.Received, kind.String())
		count(m.foreign, t.Foreign, kind.String())
	}
	m.collectRefused(out)
	for kind, ignored := range m.rota.honor.state() {
		v := 0.0
		if ignored {
			v = 1
		}
		out <- prometheus.MustNewConstMetric(m.ignored, prometheus.GaugeValue, v, kind.String())
	}
	for kind, s := range m.rota.labels.Stats() {
		count(m.labelled, s.Patched, kind.String())
		count(m.unlabelled, s.Conflicts, kind.String(), "conflict")
		count(m.unlabelled, s.Throttled, kind.String(), "throttled")
		count(m.unlabelled, s.Failures, kind.String(), "other")
	}
}

// collectRefused shows a number for each kind and request, 0 if all is well, so that alerts have something to compare.
// If several informers of a kind fail, it shows the longest failure.
func (m *metrics) collectRefused(out chan<- prometheus.Metric) {
	type series struct{ kind, request string }
	lasting := map[series]time.Duration{}
	for kind := range m.rota.share.Traffic() {
		for _, request := range []delivery.Request{delivery.RequestList, delivery.RequestWatch, delivery.RequestLookUp} {
			lasting[series{kind.String(), request.String()}] = 0
		}
	}
	for _, f := range m.rota.share.Failing() {
		at := series{f.Kind.String(), f.Request.String()}
		lasting[at] = max(lasting[at], time.Since(f.Since))
	}
	lacking := m.rota.share.Lacking()
	for kind := range m.rota.share.Traffic() {
		set := lacking[kind]
		out <- prometheus.MustNewConstMetric(m.lacking, prometheus.GaugeValue, float64(set.Len()), kind.String())
	}
	for at, d := range lasting {
		out <- prometheus.MustNewConstMetric(m.refused, prometheus.GaugeValue, d.Seconds(), at.kind, at.request)
	}
}

var _ prometheus.Collector = (*metrics)(nil)

// tableOf returns the table, or an empty one.
func (r *Rota) tableOf() *table.Table {
	if t := r.state.Table(); t != nil {
		return t
	}
	return &table.Table{}
}
