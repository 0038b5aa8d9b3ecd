package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/report"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// seriesDir is where the metrics of all scenarios go, for the test of the alerts (tools/alerts/test.sh).
var seriesDir = flag.String("series", "", "write the metrics of each scenario to this directory")

var errForbidden = errors.New("configmaps is forbidden")

// scenarios are what metrics, events and alerts have to tell. Each begins with the start of a rota. They check what the
// metrics say at the time.
var scenarios = map[string]func(l *lab){
	"healthy": func(l *lab) {
		a := l.start("web-0")
		for _, name := range []string{"rota_seconds_until_deadline", "rota_table_present"} {
			a.absent("before the first renewal", name, "")
		}
		l.wait(2 * time.Minute)
		b := l.start("web-1")
		l.wait(5 * time.Minute)
		for _, m := range []*labMember{a, b} {
			m.want("at rest", "rota_members", "", 2)
			m.want("at rest", "rota_table_present", "", 1)
			m.want("at rest", "rota_slots", `state="all"`, 256)
			m.want("at rest", "rota_slots", `state="owned"`, 128)
			m.want("at rest", "rota_slots", `state="open"`, 128)
			for _, state := range []string{"coming", "going", "unowned"} {
				m.want("at rest", "rota_slots", `state="`+state+`"`, 0)
			}
			m.want("at rest", "rota_table_epoch", "", float64(a.state.Table().Epoch))
			m.want("at rest", "rota_in_flight", "", 0)
			m.want("at rest", "rota_parked_keys", "", 0)
			m.want("at rest", "rota_stuck_reconciles", "", 0)
			m.want("at rest", "rota_rejoins_total", "", 0)
			m.want("at rest", "rota_controller_failing", `controller="test"`, 0)
			m.want("at rest", "rota_deletions_abandoned_total", "", 0)
			m.want("at rest", "rota_report_slots_per_digest", "", 1)
			if v, _ := m.value("rota_seconds_until_deadline", ""); v < 5 || v > 10 {
				l.t.Errorf("%s: %v s until the deadline, want a RenewDeadline less a RetryPeriod", m.pod, v)
			}
			if v, _ := m.value("rota_report_age_seconds", ""); v > 7.5 {
				l.t.Errorf("%s: the report is %v s old", m.pod, v)
			}
			if v, _ := m.value("rota_report_bytes", ""); v < 10 || v > 1000 {
				l.t.Errorf("%s: the report of nothing has %v bytes", m.pod, v)
			}
			if v, _ := m.value("rota_lease_renewals_total", `outcome="done"`); v < 100 {
				l.t.Errorf("%s: %v renewals in minutes", m.pod, v)
			}
		}
		duties := 0
		for _, m := range []*labMember{a, b} {
			if m.doesOwn(report.ScrubDuty) {
				duties++
				m.want("with the duty", "rota_coverage_findings", `what="unowned"`, 0)
			} else {
				m.absent("without the duty", "rota_coverage_findings", `what="unowned"`)
			}
		}
		if duties != 1 {
			l.t.Errorf("%d members compare, want 1", duties)
		}
		if v, _ := a.value("rota_table_swaps_total", `outcome="done"`); v < 2 {
			l.t.Errorf("a wrote %v tables, want those by which it joined and gave slots away", v)
		}
		// A rollout.
		for _, pod := range []string{"web-2", "web-3"} {
			old := l.members[len(l.members)-2]
			l.start(pod, func(o *Options) { o.Identity.Build = "v2" })
			l.wait(30 * time.Second)
			old.stop()
			l.wait(30 * time.Second)
		}
		l.wait(6 * time.Minute)
		if v, _ := l.members[3].value("rota_events_total", `reason="Lapsed"`); v != 0 || l.events()["Leaving"] != 2 {
			l.t.Errorf("%v lapses; events %v", v, l.events())
		}
	},
	"one-crash": func(l *lab) {
		a, b := l.start("web-0"), l.start("web-1")
		l.wait(2 * time.Minute)
		b.crash()
		l.wait(5 * time.Minute)
		a.want("after the crash", "rota_slots", `state="open"`, 256)
		a.want("after the crash", "rota_members", "", 1)
		a.want("after the crash", "rota_events_total", `reason="Expelled"`, 1)
	},
	"crash-loop": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		for range 5 {
			b := l.start("web-1")
			l.wait(time.Minute)
			b.crash()
			l.wait(time.Minute)
		}
		if v, _ := a.value("rota_events_total", `reason="Expelled"`); v < 4 {
			l.t.Errorf("%v members expelled, want every crash", v)
		}
	},
	"api-server-gone": func(l *lab) {
		a, b := l.start("web-0"), l.start("web-1")
		l.wait(2 * time.Minute)
		a.cutOff()
		b.cutOff()
		l.reports.Refuse(memory.ErrLost)
		l.wait(15 * time.Minute)
		for _, m := range []*labMember{a, b} {
			if v, there := m.value("rota_seconds_until_deadline", ""); !there || v > -600 {
				l.t.Errorf("%s: %v s until the deadline, want it minutes past", m.pod, v)
			}
			m.want("without API server", "rota_slots", `state="open"`, 0)
			m.want("without API server", "rota_events_total", `reason="Lapsed"`, 1)
			m.absent("without API server", "rota_coverage_findings", `what="unowned"`)
			if v, _ := m.value("rota_lease_renewals_total", `outcome="unknown"`); v == 0 {
				l.t.Errorf("%s: no renewal of unknown outcome", m.pod)
			}
		}
		a.fault.Store(nil)
		b.fault.Store(nil)
		l.reports.Refuse(nil)
		l.wait(2 * time.Minute)
		a.want("after it", "rota_events_total", `reason="Resumed"`, 1)
	},
	"table-lost": func(l *lab) {
		a, b := l.start("web-0"), l.start("web-1")
		l.wait(2 * time.Minute)
		for _, m := range []*labMember{a, b} { // who deleted it took the permission, too
			m.fail(func(op memory.Op) error {
				if op == memory.OpCreateTable {
					return errForbidden
				}
				return nil
			})
		}
		l.memory.Do((*memory.Objects).RemoveTable)
		l.wait(15 * time.Minute)
		for _, m := range []*labMember{a, b} {
			m.want("without table", "rota_table_present", "", 0)
			m.want("without table", "rota_members", "", 0)
			m.want("without table", "rota_table_epoch", "", 0)
			m.want("without table", "rota_slots", `state="owned"`, 0)
			m.want("without table", "rota_slots", `state="open"`, 0)
			m.want("without table", "rota_slots", `state="unowned"`, 256)
			m.want("without table", "rota_events_total", `reason="TableLost"`, 1)
			if s := m.Status(); !s.TableGone || s.Members != 0 || s.Unowned.Len() != 256 || m.state.Table() != nil {
				l.t.Errorf("%s: status %+v", m.pod, s)
			}
			m.fault.Store(nil)
		}
		if n := l.memory.Counts().Requests[memory.OpReadTable]; n > 15*60*4*2 {
			l.t.Errorf("%d reads of the table in 15 minutes without one", n)
		}
		l.wait(3 * time.Minute)
		a.want("with a new table", "rota_table_present", "", 1)
		a.want("with a new table", "rota_members", "", 2)
		a.want("with a new table", "rota_slots", `state="unowned"`, 0)
	},
	"reports-refused": func(l *lab) {
		l.start("web-0")
		l.start("web-1")
		l.wait(2 * time.Minute)
		l.reports.Refuse(errForbidden)
		l.wait(10 * time.Minute)
		for _, m := range l.members {
			if v, _ := m.value("rota_report_age_seconds", ""); v < 590 {
				l.t.Errorf("%s: the report is %v s old, want 10 minutes", m.pod, v)
			}
		}
		if found := findings(l, coverage.Silent); found != 2 || l.events()["Coverage"] != 2 {
			l.t.Errorf("%d members are found to be silent, want 2; events %v", found, l.events())
		}
	},
	"reports-unreadable": func(l *lab) {
		l.unreadable = true
		l.start("web-0")
		l.start("web-1")
		l.wait(20 * time.Minute)
	},
	"stuck": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		controller, key := a.controller, types.NamespacedName{Namespace: "a", Name: "stuck"}
		if _, ok := controller.Admit(l.t.Context(), key); !ok {
			l.t.Fatal("not admitted")
		}
		l.wait(15 * time.Minute)
		a.want("with a stuck reconcile", "rota_stuck_reconciles", "", 1)
		if v, _ := a.value("rota_longest_reconcile_seconds", ""); v < 15*60 || v > 15*60+1 {
			l.t.Errorf("the longest reconcile has taken %v s, want a quarter of an hour", v)
		}
		a.want("with a stuck reconcile", "rota_in_flight", "", 1)
		a.want("with a stuck reconcile", "rota_gate_verdicts_total", `verdict="admitted"`, 1)
		a.want("with a stuck reconcile", "rota_events_total", `reason="SlotHeldBack"`, 0) // nothing is to move
		controller.Done(key)
		l.wait(time.Minute)
		a.want("without", "rota_stuck_reconciles", "", 0)
	},
	// There is always a reconcile that takes a minute, of another object each time.
	"long-reconciles": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		for n := range 30 {
			key := types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("long-%d", n)}
			if _, ok := a.controller.Admit(l.t.Context(), key); !ok {
				l.t.Fatal("not admitted")
			}
			l.wait(time.Minute)
			if v, _ := a.value("rota_longest_reconcile_seconds", ""); v < 60 || v > 61 {
				l.t.Errorf("the longest reconcile has taken %v s, want a minute", v)
			}
			a.controller.Done(key)
		}
	},
	"not-opened": func(l *lab) { // a defect: the member thinks that a slot is open
		a, b := l.start("web-0"), l.start("web-1")
		l.wait(2 * time.Minute)
		lost := a.state.Table().Owned(b.ID())
		first := lost.Slots()[0]
		b.gate.Shut(slot.SetOf(slot.Range{First: first, Last: first}))
		l.wait(10 * time.Minute)
		b.want("with a slot shut", "rota_slots", `state="open"`, 127)
		if found := findings(l, coverage.Unowned); found != 1 || l.events()["Coverage"] != 1 {
			l.t.Errorf("%d slots that nobody works on are found, want 1; events %v", found, l.events())
		}
	},
	"watch-refused": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		a.requests.RefuseWatches(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errForbidden))
		l.wait(15 * time.Minute)
		if v, _ := a.value("rota_delivery_failing_seconds", `kind="ConfigMap"`, `request="watch"`); v < 600 {
			l.t.Errorf("watches have failed for %v s, want a quarter of an hour", v)
		}
	},
	"duty-failing": func(l *lab) {
		l.setup = func(m *labMember) {
			require.NoError(l.t, m.Duty("backup", func(context.Context) error { return errors.New("no bucket") }))
		}
		a := l.start("web-0")
		l.wait(5 * time.Minute)
		a.want("while it fails", "rota_duty_failing", `duty="backup"`, 1)
		a.want("while it fails", "rota_duty_owned", `duty="backup"`, 1)
		a.want("while it fails", "rota_events_total", `reason="DutyFails"`, 1)
	},
	"failing": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		controller := a.controller
		for until := time.Now().Add(10 * time.Minute); time.Now().Before(until); {
			for _, name := range []string{"a", "b", "c"} {
				key := types.NamespacedName{Namespace: "a", Name: name}
				controller.Take(key)
				if _, ok := controller.Admit(l.t.Context(), key); !ok {
					l.t.Fatal("not admitted")
				}
				controller.Ended(key, errForbidden)
				controller.Done(key)
			}
			l.wait(scrapePeriod)
		}
		a.want("while all fails", "rota_controller_failing", `controller="test"`, 1)
		a.want("while all fails", "rota_events_total", `reason="ReconcilesFail"`, 1)
	},
	// Slots come to a member that may not list a kind any more.
	"kind-refused": func(l *lab) {
		a, b := l.start("web-0"), l.start("web-1")
		l.wait(2 * time.Minute)
		b.want("before", "rota_delivery_slots_lacking", `kind="ConfigMap"`, 0)
		b.requests.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errForbidden))
		a.crash()
		l.wait(10 * time.Minute)
		b.want("without the permission", "rota_slots", `state="open"`, 256)
		b.want("without the permission", "rota_delivery_slots_lacking", `kind="ConfigMap"`, 128)
		named := slices.ContainsFunc(b.Status().Refused, func(f feed.Failure) bool {
			return f.Kind == labKind && f.Request == feed.RequestList && f.Without.Len() == 128
		})
		if !named {
			l.t.Errorf("the status does not name the kind and the slots: %v", b.Status().Refused)
		}
		if owns, admits := worksOn(b, 256); owns == 0 || owns == 256 || admits != owns {
			l.t.Errorf("it owns %d of 256 objects and works on %d, want those of half of the slots", owns, admits)
		}
		b.want("without the permission", "rota_events_total", `reason="KindRefused"`, 1)
		b.requests.Refuse(nil)
		l.wait(5 * time.Minute)
		b.want("with the permission", "rota_events_total", `reason="KindServed"`, 1)
		b.want("with the permission", "rota_delivery_slots_lacking", `kind="ConfigMap"`, 0)
		if owns, admits := worksOn(b, 256); owns != 256 || admits != 256 {
			l.t.Errorf("with the permission it owns %d of 256 objects, and works on %d", owns, admits)
		}
	},
	// A member that could not label objects of a kind can.
	"labels-accepted": func(l *lab) {
		a := l.start("web-0")
		l.wait(time.Minute)
		told := map[schema.GroupKind]bool{labKind: true}
		for range 2 {
			a.reportUnlabelled(l.t.Context(), told)
		}
		if n := l.events()["LabelsAccepted"]; n != 1 {
			l.t.Errorf("%d events, want one", n)
		}
	},
	// Deletions wait for workers that do nothing, while slots move to a member of an older build: it cannot be told.
	"deletions-abandoned": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		a.idle.Store(true)
		var gone []types.NamespacedName
		of := map[slot.Slot]bool{}
		for n := range 40 {
			key := types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("gone-%d", n)}
			of[slotOf(a.Engine, key)] = true
			if gone = append(gone, key); !a.controller.Add(key) {
				l.t.Fatal("not added")
			}
		}
		l.format = table.OldestFormat
		l.start("web-1")
		l.wait(2 * time.Minute)
		moved := 0
		for s := range of {
			if !a.gate.Owns(s) {
				moved++
			}
		}
		a.want("after the handover", "rota_slots", `state="open"`, 128)
		a.want("after the handover", "rota_deletions_abandoned_total", "", float64(moved))
		if moved == 0 {
			l.t.Error("no slot has moved in which there are deletions, so this says nothing")
		}
		for _, key := range gone {
			a.controller.Take(key)
			a.controller.Done(key)
		}
		l.wait(20 * time.Minute)
	},
	// Reconciles hold back slots that are to move, for long.
	"handover-stuck": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		stuck := l.stick(a)
		b := l.start("web-1")
		l.wait(2 * time.Minute)
		a.want("while it is held back", "rota_stuck_reconciles", "", 20)
		held := a.Status().Going
		mine, _ := a.value("rota_slots", `state="open"`) // with the slots that are held back: their other keys go on
		others, _ := b.value("rota_slots", `state="open"`)
		if mine+others != 256 || l.events()["Coverage"] != 0 {
			l.t.Errorf("%v and %v slots are open, events %v", mine, others, l.events())
		}
		if held.Empty() {
			l.t.Error("no slot is held back")
		}
		for _, n := range l.memory.Notes() {
			if n.Reason != "SlotHeldBack" {
				continue
			}
			named := false
			for _, key := range stuck {
				s := slotOf(a.Engine, key)
				named = named || held.Has(s) && strings.HasPrefix(n.Message,
					fmt.Sprintf("slot %d cannot move on: controller test has been reconciling %s for ", s, key))
			}
			if !named {
				l.t.Errorf("%q, want the slot that is held back, and the object", n.Message)
			}
		}
		if v, _ := a.value("rota_events_total", `reason="SlotHeldBack"`); int(v) != l.events()["SlotHeldBack"] ||
			int(v) < held.Len() {
			l.t.Errorf("%v events by the metric, %d were sent, want one for each of %d slots at least", v,
				l.events()["SlotHeldBack"], held.Len())
		}
		l.wait(13 * time.Minute)
		if v, _ := b.value("rota_handover_oldest_seconds", ""); v < 13*60 || v > 15*60 {
			l.t.Errorf("the oldest handover has been under way for %v s, want nearly a quarter of an hour", v)
		}
		for _, key := range stuck {
			a.controller.Done(key)
		}
		l.wait(time.Minute)
		b.want("afterwards", "rota_slots", `state="open"`, 128)
		a.want("afterwards", "rota_stuck_reconciles", "", 0)
		b.want("afterwards", "rota_handover_oldest_seconds", "", 0)
	},
	// A member loses the API server for a while, again and again, but never for as long as a lease lasts.
	"lapses": func(l *lab) {
		l.start("web-0")
		b := l.start("web-1")
		l.wait(2 * time.Minute)
		for range 4 {
			b.cutOff()
			time.Sleep(12 * time.Second)
			b.fault.Store(nil)
			l.wait(2 * time.Minute)
		}
		if v, _ := b.value("rota_events_total", `reason="Lapsed"`); v < 3 {
			l.t.Errorf("%v lapses, want each time that the API server was away", v)
		}
	},
	// Nearly all objects are of one slot, as with key Namespace and one large namespace.
	"skewed": func(l *lab) {
		for n := range 1500 {
			name, other := types.NamespacedName{Namespace: "large", Name: fmt.Sprintf("object-%d", n)}, n%100 == 0
			if other {
				name.Namespace = fmt.Sprintf("small-%d", n)
			}
			_, err := l.objects.Create(l.t.Context(), name, nil)
			require.NoError(l.t, err)
		}
		for n := range 3 {
			l.start(fmt.Sprintf("web-%d", n), func(o *Options) { o.Key = slot.KeyNamespace })
		}
		l.wait(30 * time.Minute)
		largest := 0.0
		for _, m := range l.members {
			if v, ok := m.value("rota_imbalance_ratio", `of="objects"`); ok {
				largest = v
			}
		}
		if largest < 2.5 || largest > 3 {
			l.t.Errorf("the imbalance of objects is %v, want nearly that of one member of three with all", largest)
		}
	},
	// The fence refuses a write of a process whose slot has moved on.
	"fenced": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		refusing := roundTripper(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusForbidden, Request: req, Header: http.Header{}, Body: io.NopCloser(
				strings.NewReader("denied request: " + names.FenceRefusal + "operators/website: this Pod is not a member"))}, nil
		})
		req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPut,
			"https://127.0.0.1:1/api/v1/namespaces/a/configmaps/b", strings.NewReader("{}"))
		require.NoError(l.t, err)
		resp, err := a.WrapTransport(refusing).RoundTrip(req)
		require.NoError(l.t, err)
		_ = resp.Body.Close()
		l.wait(5 * time.Minute)
		a.want("after it", "rota_fence_rejections_total", "", 1)
	},
	// A member leaves while it reconciles, and a key of that slot comes that takes long.
	"leaves-slowly": func(l *lab) {
		a := l.start("web-0")
		l.start("web-1")
		l.wait(2 * time.Minute)
		key := func(n int) types.NamespacedName {
			return types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("key-%d", n)}
		}
		open, first := a.Status().Open, 0
		for !open.Has(slotOf(a.Engine, key(first))) {
			first++
		}
		second := first + 1
		for slotOf(a.Engine, key(second)) != slotOf(a.Engine, key(first)) {
			second++
		}
		for _, n := range []int{first, second} { // a drain lets deletions pass
			_, err := l.objects.Create(l.t.Context(), key(n), nil)
			require.NoError(l.t, err)
		}
		l.wait(scrapePeriod)
		admit := func(n int) {
			if _, ok := a.controller.Admit(l.t.Context(), key(n)); !ok {
				l.t.Fatal("not admitted")
			}
		}
		admit(second) // it takes long, so that it would hold up the leave
		l.wait(2 * time.Minute)
		a.controller.Done(key(second))
		admit(first)
		a.leave()
		time.Sleep(time.Second)
		if _, ok := a.controller.Admit(l.t.Context(), key(second)); ok {
			l.t.Error("a long reconcile began in a slot that is to go")
		}
		l.wait(scrapePeriod)
		a.want("while it leaves", "rota_parked_keys", "", 1)
		a.controller.Done(key(first))
		l.wait(time.Minute)
		a.want("when it has left", "rota_parked_keys", "", 0)
	},
	// A webhook takes longer than WriteTimeout.
	"late-writes": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		slow := roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		for range 3 {
			key := types.NamespacedName{Namespace: "a", Name: "site"}
			ctx, ok := a.controller.Admit(l.t.Context(), key)
			if !ok {
				l.t.Fatal("not admitted")
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPut,
				"https://127.0.0.1:1/api/v1/namespaces/a/configmaps/b", strings.NewReader("{}"))
			require.NoError(l.t, err)
			if resp, err := a.WrapTransport(slow).RoundTrip(req); err == nil {
				_ = resp.Body.Close()
				l.t.Error("a write that nobody answers succeeded")
			}
			a.controller.Done(key)
			l.wait(time.Minute)
		}
		a.want("after them", "rota_write_timeouts_total", "", 3)
	},
	// Somebody pauses moves, and forgets it.
	"paused": func(l *lab) {
		a := l.start("web-0")
		l.start("web-1")
		l.wait(2 * time.Minute)
		l.order(func(t *table.Table) error { return orders.Pause(t, orders.By{At: time.Now(), User: "jane"}) })
		l.wait(30 * time.Minute)
		a.want("while moves are paused", "rota_moves_paused", "", 1)
		l.wait(45 * time.Minute)
		l.order(orders.Resume)
		l.wait(time.Minute)
		a.want("afterwards", "rota_moves_paused", "", 0)
	},
	// A canary goes back, and an object is pinned to members that there are not.
	"canary": func(l *lab) {
		a := l.start("web-0")
		c := l.start("web-1", func(o *Options) { o.Identity.Build = "v2" })
		l.wait(2 * time.Minute)
		by := orders.By{At: time.Now(), User: "jane"}
		l.order(func(t *table.Table) error {
			if err := orders.StartCanary(t, orders.Canary{Build: "v2", Steps: []int{5}}, by); err != nil {
				return err
			}
			return orders.Pin(t, "a/huge", "pool=large", nil, true, by)
		})
		l.wait(5 * time.Minute)
		a.want("while it runs", "rota_canary_slots", "", 13)
		c.want("while it runs", "rota_slots", `state="open"`, 13)
		a.want("while nobody has the labels", "rota_pins_unmet", "", 1)
		l.order(func(t *table.Table) error { return orders.AbortCanary(t, by) })
		l.wait(30 * time.Minute)
		a.want("when it has gone back", "rota_canary_slots", "", 0)
		a.want("when it has gone back", "rota_canary_back", "", 1)
		c.want("when it has gone back", "rota_slots", `state="open"`, 0)
		l.order(orders.PromoteCanary)
		l.order(func(t *table.Table) error { return orders.Unpin(t, "a/huge") })
		l.wait(time.Minute)
		a.want("afterwards", "rota_canary_back", "", 0)
		a.want("afterwards", "rota_pins_unmet", "", 0)
	},
	// Two of three members are drained: the load of the others counts as even.
	"drained": func(l *lab) {
		a := l.start("web-0")
		b, c := l.start("web-1"), l.start("web-2")
		l.wait(2 * time.Minute)
		for _, m := range []*labMember{b, c} {
			l.order(func(t *table.Table) error { return orders.Drain(t, m.ID(), orders.By{At: time.Now()}) })
		}
		l.wait(30 * time.Minute)
		a.want("while two are drained", "rota_members_drained", "", 2)
		a.want("while two are drained", "rota_slots", `state="open"`, 256)
		for _, m := range l.members {
			if m.doesOwn(report.ScrubDuty) {
				m.want("while two are drained", "rota_imbalance_ratio", `of="slots"`, 1)
			}
		}
	},
	// A rota that takes turns with leader election waits, while a stock replica leads.
	"another-one-leads": func(l *lab) {
		stock := l.startStock("stock-0", true)
		defer stock.stop()
		a := l.start("web-0", withElection)
		l.start("web-1", withElection)
		l.wait(30 * time.Minute)
		a.want("while it waits", "rota_elected", "", 0)
		a.want("while it waits", "rota_slots", `state="open"`, 0)
		if left, there := a.value("rota_seconds_until_deadline", ""); !there || left < 5 || left > 10 {
			l.t.Errorf("while it waits it renews its own Lease, but has %v s left (%t)", left, there)
		}
	},
	// Members may not write their reports any more.
	"permission-removed": func(l *lab) {
		a := l.start("web-0")
		l.start("web-1")
		l.wait(2 * time.Minute)
		l.reports.Refuse(&permission.Error{Namespace: "operators", Group: "coordination.k8s.io", Resource: "leases",
			Verb: "update", Err: errForbidden})
		l.wait(10 * time.Minute)
		a.want("afterwards", "rota_events_total", `reason="PermissionMissing"`, 1)
	},
	// All workers are busy.
	"keys-wait": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		a.idle.Store(true)
		key := types.NamespacedName{Namespace: "a", Name: "waits"}
		if !a.controller.Add(key) {
			l.t.Fatal("not added")
		}
		l.wait(10 * time.Minute)
		a.want("while it waits", "rota_oldest_waiting_seconds", "", float64(int(time.Minute.Seconds()*10)))
		a.controller.Take(key)
		a.want("with a worker", "rota_oldest_waiting_seconds", "", 0)
		a.controller.Done(key)
		l.wait(time.Minute)
	},
	"table-large": func(l *lab) { // as with thousands of members of long names
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		kept := a.state.Snapshot()
		large := kept
		large.Table = kept.Table.Clone()
		for n := range 4000 {
			large.Table.Expels = append(large.Table.Expels, table.Expel{Pod: fmt.Sprintf("%s-%d", strings.Repeat("web", 60), n), At: 1})
		}
		a.state.See(large)
		l.wait(10 * time.Minute)
		if v, _ := a.value("rota_table_bytes", ""); v < 737280 || v > 983040 {
			l.t.Errorf("the table has %v bytes", v)
		}
		a.state.See(kept)
		l.wait(time.Minute)
		if v, _ := a.value("rota_table_bytes", ""); v < 100 || v > 1000 {
			l.t.Errorf("the table of one member has %v bytes", v)
		}
	},
	// A Deployment of another operator was given the rota's name. Its member waits, and joins once the first one is gone.
	"two-deployments": func(l *lab) {
		a := l.start("website-7d9f8b6c5-x2x4q")
		l.wait(2 * time.Minute)
		b := l.startOf("gadgets-5c6d7f8b9-b2b4z", []schema.GroupKind{gadgetKind})
		l.wait(15 * time.Minute)
		waits(l, b, "kind Gadget.example.com: not sharded ("+a.ID()+"), sharded by its own key (gadgets-5c6d7f8b9-b2b4z-",
			"different workloads, gadgets and website: give one of them another Options.Name")
		a.want("beside it", "rota_members", "", 1)
		a.want("beside it", "rota_slots", `state="open"`, 256)
		a.want("beside it", "rota_coverage_findings", `what="mixed"`, 0)
		a.want("beside it", "rota_join_conflicts", "", 0)
		a.stop()
		l.wait(2 * time.Minute)
		b.want("alone", "rota_slots", `state="open"`, 256)
		b.want("alone", "rota_join_conflicts", "", 0)
		if err := b.Ready(nil); err != nil {
			l.t.Error(err)
		}
	},
	// Nobody is there by whom it could be noticed at the join.
	"two-deployments-at-once": func(l *lab) {
		a := l.start("website-7d9f8b6c5-x2x4q")
		b := l.startOf("gadgets-5c6d7f8b9-b2b4z", []schema.GroupKind{gadgetKind})
		l.wait(2 * time.Minute)
		a.want("side by side", "rota_members", "", 2)
		found := mixed(l)
		if len(found) != 2 || found[0].About != "kind ConfigMap" || found[1].About != "kind Gadget.example.com" {
			l.t.Fatalf("found %v, want a difference in either kind", found)
		}
		for _, part := range []string{a.ID(), b.ID(), "not sharded", "sharded by its own key", "gadgets and website"} {
			if !strings.Contains(found[0].String(), part) {
				l.t.Errorf("%q does not name %q", found[0], part)
			}
		}
		if n := l.events()["SetupDiffers"]; n != 2 {
			l.t.Errorf("%d events, want one for each kind", n)
		}
		l.wait(5 * time.Minute)
	},
	// A rollout that adds a kind, of which there are objects, and changes a duration; it is stopped for a while in the
	// middle.
	"rollout-adds-kind": func(l *lab) {
		gadgets(l)
		scrubbing := func(o *Options) { o.ScrubPeriod = time.Second }
		old := []*labMember{l.start("web-7d9f8b6c5-x2x4q", scrubbing), l.start("web-7d9f8b6c5-z5v7w", scrubbing)}
		l.wait(2 * time.Minute)
		for i, pod := range []string{"web-5c6d7f8b9-b2b4z", "web-5c6d7f8b9-c5d7f"} {
			m := l.startOf(pod, []schema.GroupKind{labKind, gadgetKind}, scrubbing,
				func(o *Options) { o.Identity.Build, o.FenceDelay = "v2", 3*time.Second })
			l.wait(8 * time.Minute)
			m.want("in the rollout", "rota_join_conflicts", "", 0)
			old[i].stop()
			l.wait(time.Minute)
		}
		l.wait(15 * time.Minute)
		if n := l.events(); n["SetupDiffers"]+n["Coverage"] != 0 {
			l.t.Errorf("events %v, want none of a rollout", n)
		}
		l.members[3].want("after the rollout", "rota_members", "", 2)
	},
	// One that does not end. The first member compares, and knows no Gadgets.
	"half-a-rollout": func(l *lab) {
		halfARollout(l, []schema.GroupKind{labKind}, []schema.GroupKind{labKind, gadgetKind})
		l.wait(5 * time.Minute)
		if found := mixed(l); len(found) != 1 || found[0].About != "kind Gadget.example.com" {
			l.t.Errorf("found %v, want the kind", found)
		}
	},
	// The first member compares, and knows Gadgets.
	"half-a-rollback": func(l *lab) {
		halfARollout(l, []schema.GroupKind{labKind, gadgetKind}, []schema.GroupKind{labKind})
		l.wait(5 * time.Minute)
		if found := mixed(l); len(found) != 1 || found[0].About != "kind Gadget.example.com" ||
			findings(l, coverage.Unread) == 0 {
			l.t.Errorf("found %v and %d slots without an informer, want the kind, and what is not worked on", found,
				findings(l, coverage.Unread))
		}
	},
	// Half of the members have another lease, with which they can work.
	"lease-differs": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		b := l.start("web-1", func(o *Options) { o.LeaseDuration, o.RenewDeadline = 20*time.Second, 10*time.Second })
		l.wait(9 * time.Minute)
		a.want("together", "rota_members", "", 2)
		if n := l.events()["SetupDiffers"]; n != 0 {
			l.t.Errorf("%d events, want none as long as it may be a rollout", n)
		}
		l.wait(5 * time.Minute)
		found := mixed(l)
		want := "members differ in LeaseDuration: 15s (" + a.ID() + "), 20s (" + b.ID() +
			"); no rollout lasts that long: set them up alike"
		if len(found) != 1 || found[0].String() != want {
			l.t.Errorf("found %v, want %q", found, want)
		}
	},
	// A member that would work on when others have given its slots away. One that died in between keeps nobody.
	"lease-too-long": func(l *lab) {
		a := l.start("web-0")
		l.wait(2 * time.Minute)
		b := l.start("web-1", func(o *Options) { o.LeaseDuration = 30 * time.Second })
		l.wait(5 * time.Minute)
		waits(l, b, "RenewDeadline 20s (web-1-", "LeaseDuration 15s ("+a.ID()+")",
			"RenewDeadline must be shorter than the LeaseDuration of every member")
		a.want("beside it", "rota_members", "", 1)
		a.crash()
		l.wait(3 * time.Minute)
		b.want("alone", "rota_slots", `state="open"`, 256)
	},
}

// worksOn returns how many of so many keys a member says to own, and how many its controller admits.
func worksOn(m *labMember, keys int) (owns, admits int) {
	for n := range keys {
		key := types.NamespacedName{Namespace: "a", Name: fmt.Sprint(n)}
		if m.Owns(labKind, key) {
			owns++
		}
		m.controller.Add(key)
		m.controller.Take(key)
		if _, ok := m.controller.Admit(m.lab.t.Context(), key); ok {
			admits++
		}
		m.controller.Done(key)
	}
	return owns, admits
}

// gadgets makes some.
func gadgets(l *lab) {
	l.t.Helper()
	for n := range 50 {
		if _, err := l.gadgets.Create(l.t.Context(), types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("gadget-%d", n)},
			nil); err != nil {
			l.t.Fatal(err)
		}
	}
}

// waits fails where a member has joined, or does not say that it waits, and why.
func waits(l *lab, m *labMember, parts ...string) {
	l.t.Helper()
	err := m.Ready(nil)
	if err == nil {
		l.t.Fatal("a member has joined that does not fit to the others")
	}
	told := ""
	for _, n := range l.memory.Notes() {
		if n.Reason == "SetupDiffers" {
			told += n.Message
		}
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) || !strings.Contains(told, part) {
			l.t.Errorf("%q does not stand in %q and %q", part, err, told)
		}
	}
	if v, _ := m.value("rota_join_conflicts", ""); v == 0 {
		l.t.Error("rota_join_conflicts is 0")
	}
	m.want("while it waits", "rota_slots", `state="open"`, 0)
}

// mixed returns the differences between members that are found.
func mixed(l *lab) []coverage.Finding {
	var out []coverage.Finding
	for _, m := range l.members {
		for _, f := range m.Status().Findings {
			if f.What == coverage.Mixed {
				out = append(out, f)
			}
		}
	}
	return out
}

// R14: an object that its owner does not hold is found within one and a half leases, whatever else is or is not going
// on.
func TestR14LostObjectIsFoundInTime(t *testing.T) {
	inLab(t, func(l *lab) {
		for n := range 200 {
			if _, err := l.objects.Create(t.Context(), types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("object-%d", n)},
				nil); err != nil {
				t.Fatal(err)
			}
		}
		scrubbing := func(o *Options) { o.ScrubPeriod = time.Second }
		a, b := l.start("web-0", scrubbing), l.start("web-1", scrubbing)
		l.wait(2 * time.Minute)
		objects := 0
		for _, m := range []*labMember{a, b} {
			objects += len(m.informer.GetStore().List())
		}
		if objects != 200 || findings(l, coverage.Differs) > 0 {
			t.Fatalf("%d objects are held, want 200; %d differences", objects, findings(l, coverage.Differs))
		}
		lost := b.informer.GetStore().List()[0]
		require.NoError(t, b.informer.GetStore().Delete(lost))
		begun := time.Now()
		for findings(l, coverage.Differs) == 0 && time.Since(begun) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begun); took > 3*a.cfg.LeaseDuration/2 {
			t.Errorf("found after %v, with a lease of %v", took, a.cfg.LeaseDuration)
		}
		require.NoError(t, b.informer.GetStore().Add(lost))
		l.wait(time.Minute)
		if n := findings(l, coverage.Differs); n > 0 {
			t.Errorf("%d differences are still found", n)
		}
	})
}

// unreadable reports are those of an API server that refuses to list them.
type unreadable struct{ *sharedReports }

func (unreadable) Read(context.Context) ([]*coverage.Report, error) { return nil, errForbidden }

func findings(l *lab, what coverage.What) int {
	n := 0
	for _, m := range l.members {
		for _, f := range m.Status().Findings {
			if f.What == what {
				n++
			}
		}
	}
	return n
}

func TestScenarios(t *testing.T) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				scenario(l)
				if *seriesDir == "" {
					return
				}
				require.NoError(t, os.WriteFile(filepath.Join(*seriesDir, name+".txt"), []byte(l.text()), 0o600))
			})
		})
	}
}

// Every reason of events stands in some test or script that fails without such an event.
func TestReasonsAreAsserted(t *testing.T) {
	var tests strings.Builder
	for _, pattern := range []string{
		"*_test.go", "../../ctrlrt/*_test.go", "../protocol/planner/*_test.go",
		"../protocol/member/*_test.go", "../protocol/member/testdata/*.txt",
	} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			tests.Write(text)
		}
	}
	asserted := map[string]bool{}
	for _, m := range regexp.MustCompile(`"([A-Za-z]+(?: [A-Za-z]+)*)"|(?:expect|wait \w+) (?:notes [a-z]+|told) ([A-Za-z]+)`).
		FindAllStringSubmatch(tests.String(), -1) {
		for word := range strings.FieldsSeq(m[1] + " " + m[2]) {
			asserted[word] = true
		}
	}
	for _, reason := range reasons() {
		if !asserted[reason] {
			t.Errorf("no test asserts an event %s", reason)
		}
	}
}

// halfARollout starts a member with each list of kinds, and leaves it at that for as long as it may be a rollout.
func halfARollout(l *lab, first, second []schema.GroupKind) {
	gadgets(l)
	scrubbing := func(o *Options) { o.ScrubPeriod = time.Second }
	l.startOf("web-7d9f8b6c5-x2x4q", first, scrubbing)
	l.wait(2 * time.Minute)
	l.startOf("web-5c6d7f8b9-b2b4z", second, scrubbing)
	l.wait(9 * time.Minute)
	if n := l.events(); n["SetupDiffers"]+n["Coverage"] != 0 {
		l.t.Errorf("events %v, want none as long as it may be a rollout", n)
	}
}
