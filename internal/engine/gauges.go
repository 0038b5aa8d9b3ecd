package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// sampled is a metric that is computed at each scrape.
type sampled struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	take func(s sample, put func(v float64, by ...string))
}

// sample is the state from which the sampled metrics are computed.
type sample struct {
	Status
	rota  *Engine
	table *table.Table
}

// declare adds a metric. by lists its labels.
func (m *metrics) declare(kind prometheus.ValueType, name, help string, by []string,
	take func(s sample, put func(v float64, by ...string)),
) {
	m.sampled = append(m.sampled, sampled{prometheus.NewDesc(name, help, by, m.labels), kind, take})
}

func (m *metrics) gauge(name, help string, value func(sample) float64) {
	m.declare(prometheus.GaugeValue, name, help, nil, func(s sample, put func(float64, ...string)) { put(value(s)) })
}

func (m *metrics) gauges(name, help, by string, take func(s sample, put func(v float64, by ...string))) {
	m.declare(prometheus.GaugeValue, name, help, []string{by}, take)
}

func (m *metrics) counts(name, help string, by []string, take func(s sample, put func(v float64, by ...string))) {
	m.declare(prometheus.CounterValue, name, help, by, take)
}

// one is 1 for true, and 0 for false.
func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// declareTable declares the metrics of the table and the Lease.
func (m *metrics) declareTable() {
	m.gauges("rota_slots", "Slots of this member (owned, open, coming, going) and of the whole rota (unowned, "+
		"all). Without a table all are unowned.", "state", func(s sample, put func(float64, ...string)) {
		put(float64(s.Owned.Len()), "owned")
		put(float64(s.Open.Len()), "open")
		put(float64(s.Coming.Len()), "coming")
		put(float64(s.Going.Len()), "going")
		put(float64(s.Unowned.Len()), "unowned")
		put(float64(s.rota.cfg.Slots), "all")
	})
	m.gauges("rota_memory_bytes", "Memory of this process: used, limit (the container's, or GOMEMLIMIT if "+
		"lower), and base, its use when it last had no slot. Absent if no limit is known.",
		"state", func(s sample, put func(float64, ...string)) {
			if report := s.rota.meter.last(); report.Limit > 0 {
				put(float64(report.Used), "used")
				put(float64(report.Limit), "limit")
				put(float64(report.Base), "base")
			}
		})
	m.gauge("rota_table_epoch", "Epoch of the table; 0 without a table.",
		func(s sample) float64 { return float64(s.Epoch) })
	m.gauge("rota_table_bytes", "Size of the table, of at most 983,040 bytes. Above 737,280 comes the event "+
		"TableLarge.", func(s sample) float64 { return float64(s.table.Size(1)) })
	m.gauge("rota_members", "Members in the table; 0 without a table.",
		func(s sample) float64 { return float64(s.Members) })
	m.declare(prometheus.GaugeValue, "rota_table_present", "1 if there is a table. 0 if it was deleted or no "+
		"member has made one yet. Absent until the member has looked.", nil,
		func(s sample, put func(float64, ...string)) {
			if s.TableGone || s.Epoch > 0 {
				put(one(!s.TableGone))
			}
		})
	m.gauge("rota_moves_paused", "1 while moves between live members are paused (rota pause).",
		func(s sample) float64 { return one(!s.TableGone && s.table.Paused()) })
	m.gauge("rota_canary_slots", "Slots of the running canary, 0 if none runs.", func(s sample) float64 {
		if s.TableGone {
			return 0
		}
		set := s.table.CanarySlots()
		return float64(set.Len())
	})
	m.gauge("rota_canary_back", "1 while a canary has gone back and its members get nothing.",
		func(s sample) float64 {
			return one(!s.TableGone && s.table.Canary.On() && s.table.Canary.State == table.CanaryBack)
		})
	m.gauge("rota_pins_unmet", "Pins whose labels no member has that could have the slot (rota pin).",
		func(s sample) float64 {
			if s.TableGone {
				return 0
			}
			return float64(len(s.table.UnmetPins()))
		})
	m.gauge("rota_members_drained", "Drained members (rota drain).", func(s sample) float64 {
		if s.TableGone {
			return 0
		}
		return float64(len(s.table.Drains))
	})
	m.declare(prometheus.GaugeValue, "rota_seconds_until_deadline", "Time until this member stops unless it "+
		"renews its Lease. Negative once it has stopped, absent before the first renewal.", nil,
		func(s sample, put func(float64, ...string)) {
			if _, own, renewed := s.rota.state.Deadline(); renewed { // own: the other one is negative while another leads
				put((own - s.rota.clock.Late()).Seconds())
			}
		})
	m.declare(prometheus.GaugeValue, "rota_elected", "1 if the rota holds leader election's Lease and this "+
		"member works, 0 if another candidate holds it. Only with Options.LeaderElectionID.", nil,
		func(s sample, put func(float64, ...string)) {
			if s.rota.opts.LeaderElectionID != "" && s.ID != "" {
				put(one(s.Waiting == ""))
			}
		})
}

// declareWork declares the metrics of reconciles and handovers.
func (m *metrics) declareWork() {
	m.gauge("rota_in_flight", "Reconciles and writes of unknown outcome in flight.", func(s sample) float64 {
		_, ending := s.rota.gate.Tasks()
		return float64(s.rota.inFlight() - ending) // show how busy the workers are
	})
	m.gauges("rota_go_functions", "Functions of rota.Go: running, and ending, which have to end and have not "+
		"returned.", "state", func(s sample, put func(float64, ...string)) {
		running, ending := s.rota.gate.Tasks()
		put(float64(running), "running")
		put(float64(ending), "ending")
	})
	m.gauge("rota_parked_keys", "Keys that wait until their slot stays or goes.",
		func(s sample) float64 { return float64(s.rota.gate.Parked()) })
	m.gauge("rota_stuck_reconciles", "Reconciles in flight for more than 10 s, and functions of rota.Go that "+
		"have not returned within 10 s. Each holds its slot back.",
		func(s sample) float64 { return float64(len(s.Stuck)) })
	m.gauge("rota_longest_reconcile_seconds", "Age of the oldest reconcile in flight, 0 up to 10 s.",
		func(s sample) float64 {
			longest := time.Duration(0)
			for _, f := range s.Stuck {
				longest = max(longest, f.For)
			}
			return longest.Seconds()
		})
	m.gauge("rota_handover_oldest_seconds", "Age of the oldest handover to this member that is under way, 0 if "+
		"there is none.", func(s sample) float64 { return s.rota.oldestMove().Seconds() })
	m.gauge("rota_oldest_waiting_seconds", "Time that this member's oldest key has waited for a worker, 0 if "+
		"none waits.", func(s sample) float64 { return s.rota.oldestWaiting().Seconds() })
	m.gauges("rota_lost_waiting", "Objects that have left this member and whose OnLost has not returned.",
		"controller", func(s sample, put func(float64, ...string)) {
			for _, c := range s.rota.controllers.All() {
				if n, set := c.Losses(); set {
					put(float64(n), c.Name)
				}
			}
		})
	m.gauge("rota_load", "How many workers the reconciles of this member's sharded objects keep busy, averaged "+
		"over some minutes.", func(s sample) float64 {
		all, _ := s.rota.load()
		return all
	})
	m.gauge("rota_load_hottest_slot", "The load of this member's busiest slot.", func(s sample) float64 {
		_, hottest := s.rota.load()
		return hottest
	})
	m.gauges("rota_objects", "Objects of sharded kinds in the slots on which this member works.", "kind",
		func(s sample, put func(float64, ...string)) {
			for kind, n := range s.rota.objects() {
				put(float64(n), kind.String())
			}
		})
	m.gauges("rota_controller_failing", "1 while all reconciles of the controller fail on this member (event "+
		"ReconcilesFail).", "controller", func(s sample, put func(float64, ...string)) {
		for _, c := range s.rota.controllers.All() {
			_, failing := c.Failing()
			put(one(failing), c.Name)
		}
	})
}

// declareDuties declares the metrics of duties.
func (m *metrics) declareDuties() {
	each := func(value func(s sample, d DutyStatus) float64) func(s sample, put func(float64, ...string)) {
		return func(s sample, put func(float64, ...string)) {
			for _, d := range s.Duties {
				if d.Declared {
					put(value(s, d), d.Name)
				}
			}
		}
	}
	owns := func(s sample, d DutyStatus) bool { return s.ID != "" && d.Owner == s.ID }
	m.gauge("rota_duties", "Duties of this member, without the rota's own (rota.dev/…).", func(s sample) float64 {
		owned := 0
		for _, d := range s.Duties {
			if d.Declared && owns(s, d) && !table.OwnDuty(d.Name) {
				owned++
			}
		}
		return float64(owned)
	})
	m.gauges("rota_duty_owned", "1 on the member that has the duty, 0 on others that can do it.", "duty",
		each(func(s sample, d DutyStatus) float64 { return one(owns(s, d)) }))
	m.counts("rota_duty_restarts_total", "Restarts of the duty on this member after it had failed.",
		[]string{"duty"}, each(func(_ sample, d DutyStatus) float64 { return float64(d.Restarts) }))
	m.gauges("rota_duty_failing", "1 while the duty keeps failing on this member (event DutyFails).",
		"duty", each(func(s sample, d DutyStatus) float64 {
			return one(slices.ContainsFunc(s.Failing, func(f Failing) bool { return f.Duty == d.Name }))
		}))
}

// declareReports declares the metrics of reports and of what members hold.
func (m *metrics) declareReports() {
	m.gauges("rota_coverage_findings", "Findings of the last comparison of what members hold with what exists. "+
		"Only the member that compares has it.", "what",
		func(s sample, put func(float64, ...string)) {
			findings, _, on := s.rota.reporter.Findings()
			if !on {
				return
			}
			byWhat := map[coverage.What]int{}
			for _, f := range findings {
				byWhat[f.What]++
			}
			for _, what := range coverage.Whats() {
				put(float64(byWhat[what]), what.String())
			}
		})
	m.counts("rota_coverage_scrubs_total", "Comparisons of what members hold with what exists, made by this "+
		"member.",
		nil, func(s sample, put func(float64, ...string)) { put(float64(s.Scrubs)) })
	m.gauges("rota_imbalance_ratio", "Largest load of a member divided by the mean, by weight: slots, objects, "+
		"or load (busy workers; only while there is a tenth of a worker for each member). 1 is even. Only the member "+
		"that compares has it.", "of", func(s sample, put func(float64, ...string)) {
		if _, _, on := s.rota.reporter.Findings(); !on {
			return
		}
		load := s.rota.reporter.Imbalance()
		for of, v := range map[string]float64{"slots": load.Slots, "objects": load.Objects, "load": load.Load} {
			if v > 0 {
				put(v, of)
			}
		}
	})
	m.gauge("rota_join_conflicts", "Kinds and options in which this process conflicts with working members, so "+
		"that it does not join.", func(s sample) float64 {
		return float64(len(s.rota.reporter.Conflicts()))
	})
	published := func(name, help string, value func(now, at time.Duration, bytes, fold int) float64) {
		m.declare(prometheus.GaugeValue, name, help, nil, func(s sample, put func(float64, ...string)) {
			if at, bytes, fold := s.rota.reporter.Published(); fold > 0 {
				put(value(s.rota.now(), at, bytes, fold))
			}
		})
	}
	published("rota_report_age_seconds", "Time since this member last reported what it holds, or began to try.",
		func(now, at time.Duration, _, _ int) float64 { return (now - at).Seconds() })
	published("rota_report_bytes", "Size of this member's report, kept below 230 KiB.",
		func(_, _ time.Duration, bytes, _ int) float64 { return float64(bytes) })
	published("rota_report_slots_per_digest", "Slots that share one digest in the report. Above 1 there are too "+
		"many kinds and slots for a digest each.", func(_, _ time.Duration, _, fold int) float64 { return float64(fold) })
}

// declareDelivery declares the metrics of informers and labels.
func (m *metrics) declareDelivery() {
	traffic := func(value func(feed.Traffic) uint64) func(s sample, put func(float64, ...string)) {
		return func(s sample, put func(float64, ...string)) {
			for kind, t := range s.Traffic {
				put(float64(value(t)), kind.String())
			}
		}
	}
	byKind := []string{"kind"}
	m.counts("rota_delivery_objects_received_total", "Objects of sharded kinds received from the API server, in "+
		"lists and events.", byKind, traffic(func(t feed.Traffic) uint64 { return t.Received }))
	m.counts("rota_delivery_objects_foreign_total", "Received objects that were not asked for: the API server "+
		"ignores the shard selector, or they are mislabeled.", byKind,
		traffic(func(t feed.Traffic) uint64 { return t.Foreign }))
	m.gauges("rota_delivery_selector_ignored", "1 if the API server ignored the shard selector when it last sent "+
		"objects of the kind. Only with ShardSelector.", "kind", func(s sample, put func(float64, ...string)) {
		for kind, ignored := range s.Ignored {
			put(one(ignored), kind.String())
		}
	})
	m.gauges("rota_delivery_slots_lacking", "Slots opened although the kind cannot be listed. Controllers that "+
		"need it do not work on them.", "kind", func(s sample, put func(float64, ...string)) {
		lacking := s.rota.share.Lacking()
		for kind := range s.Traffic {
			set := lacking[kind]
			put(float64(set.Len()), kind.String())
		}
	})
	m.declare(prometheus.GaugeValue, "rota_delivery_failing_seconds", "Time that an informer's list, watch or "+
		"look-up has failed, 0 if the last one succeeded. The log has the error.", []string{"kind", "request"}, lasting)
	m.counts("rota_labels_written_total", "Labels for delivery that this member wrote.", byKind,
		func(s sample, put func(float64, ...string)) {
			for kind, n := range s.rota.labels.Stats() {
				put(float64(n.Patched), kind.String())
			}
		})
	m.counts("rota_label_failures_total", "Failed attempts to write labels for delivery, by reason.",
		[]string{"kind", "reason"}, func(s sample, put func(float64, ...string)) {
			for kind, n := range s.rota.labels.Stats() {
				put(float64(n.Conflicts), kind.String(), "conflict")
				put(float64(n.Throttled), kind.String(), "throttled")
				put(float64(n.Failures), kind.String(), "other")
			}
		})
}

// lasting emits a value for each kind and request, 0 if it succeeds, so that alerts always have a series. If several
// informers of a kind fail, the value is the longest failure.
func lasting(s sample, put func(float64, ...string)) {
	type series struct{ kind, request string }
	all := map[series]time.Duration{}
	for kind := range s.Traffic {
		for _, request := range []feed.Request{feed.RequestList, feed.RequestWatch, feed.RequestLookUp} {
			all[series{kind.String(), request.String()}] = 0
		}
	}
	for _, f := range s.Refused {
		at := series{f.Kind.String(), f.Request.String()}
		all[at] = max(all[at], time.Since(f.Since))
	}
	for at := range maps.Keys(all) {
		put(all[at].Seconds(), at.kind, at.request)
	}
}
