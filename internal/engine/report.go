package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/report"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// holdings is the report.Account of a member that works.
type holdings struct{ rota *Engine }

var _ report.Account = holdings{}

// Duties implements report.Account.
func (holdings) Duties() []string { return []string{report.ScrubDuty} }

// Run implements report.Account.
func (h holdings) Run(m report.Member) { h.rota.reporter.Compare(m) }

// Report implements report.Account.
func (h holdings) Report(id string, setup map[string]string) *coverage.Report {
	r := h.rota
	out := r.outline(id, setup)
	out.Health, out.Hottest = r.controllers.Health(), r.controllers.Hottest()
	out.Blocked = r.blocked()
	out.Trial = r.controllers.Trial()
	now := r.now()
	for s, at := range r.controllers.Oldest() {
		if age := now - at; age > time.Second && out.Open.Has(s) {
			out.Waiting[s] = age
		}
	}
	return out
}

// blockedAfter is how long an object must have waited for a worker. A free worker would take it at once.
const blockedAfter = 5 * time.Second

// blocked returns the controllers whose workers all hang while other objects wait.
func (r *Engine) blocked() (out []coverage.Blocked) {
	for _, c := range r.controllers.All() {
		b, hang := coverage.Blocked{Controller: c.Name}, true
		c.Work.With(func(k *work.Keys[types.NamespacedName, work.Flying]) {
			k.Flights(func(_ types.NamespacedName, f work.Flight[work.Flying]) {
				b.Workers++
				hang = hang && r.wall().Sub(f.With.Since) >= coverage.HangingAfter
			})
			oldest := map[slot.Slot]time.Duration{}
			if hang && b.Workers > 0 {
				k.Oldest(oldest)
			}
			for s, since := range oldest {
				b.For = max(b.For, r.now()-since)
				for _, key := range k.Waiting(s) {
					if k.Ready(key) {
						b.Waiting++
					}
				}
			}
		})
		if b.For >= blockedAfter {
			out = append(out, b)
		}
	}
	return out
}

// report returns the account's report with the handovers added.
func (i *incarnation) report() *coverage.Report {
	r := i.rota.account.Report(i.ID(), i.rota.settings())
	r.Handovers = i.moves.Handovers()
	r.Refused, r.Unlabelled = i.rota.refusedKinds(), i.rota.unlabelledKinds()
	if waits := i.Waiting(); waits != "" {
		r.Waits = waits
	} else { // otherwise all work is paused while another candidate leads
		r.Moving = i.moves.Ages(i.rota.now())
	}
	return r
}

// outline returns the report of holdings, without the keys that wait for workers.
func (r *Engine) outline(id string, setup map[string]string) *coverage.Report {
	open := r.hashes(r.gate.Working())
	out := &coverage.Report{
		Member: id, Open: open, Digests: r.share.Digest(open),
		Owners: map[schema.GroupKind]map[schema.GroupKind]bool{}, Waiting: map[slot.Slot]time.Duration{}, Setup: setup,
		Selections: r.share.Selections(), Loads: coverage.LoadsOf(r.loads()),
	}
	for kind := range out.Digests {
		if owners := r.share.Owners(kind); owners != nil {
			out.Owners[kind] = owners
		}
	}
	return out
}

// settings returns this member's settings for its report.
func (r *Engine) settings() map[string]string {
	out := map[string]string{
		coverage.SettingLease: r.cfg.LeaseDuration.String(), coverage.SettingDeadline: r.cfg.RenewDeadline.String(),
		coverage.SettingRetry: r.cfg.RetryPeriod.String(), coverage.SettingWrite: r.cfg.WriteTimeout.String(),
		coverage.SettingFence: r.cfg.FenceDelay.String(), coverage.SettingDelivery: r.share.Delivery().String(),
		coverage.SettingLabel: strconv.FormatBool(r.opts.Label), coverage.SettingBalance: r.opts.balance(),
		coverage.SettingProcess: r.process,
	}
	if workload := r.opts.Identity.Workload; workload != "" {
		out[coverage.SettingWorkload] = workload
	}
	if labels := r.cfg.Self.Labels; labels != "" {
		out[coverage.SettingLabels] = labels
	}
	if lease := r.opts.electionLease(); lease.Name != "" && !r.opts.Solo {
		out[coverage.SettingElection] = lease.String()
	}
	if users := r.writes.Impersonated(); len(users) > 0 {
		out[coverage.SettingImpersonates] = fmt.Sprintf("%q", users)
	}
	if kinds := r.share.Bookmarkless(); len(kinds) > 0 {
		var text []string
		for _, kind := range kinds {
			text = append(text, kind.String())
		}
		out[coverage.SettingBookmarkless] = strings.Join(text, ",")
	}
	report.Announce(r.opts.Group, out)
	if kinds := r.keeper.Kinds(); len(kinds) > 0 {
		out[coverage.SettingDispatched] = strings.Join(slices.Sorted(slices.Values(kinds)), ",")
	}
	if address := r.keeper.Address(); address != "" {
		out[coverage.SettingDispatcher] = address
	}
	return out
}

// memberLoads reads the loads that members report.
func (r *Engine) memberLoads(ctx context.Context) ([]planner.LoadReport, error) {
	if r.reports == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.WriteTimeout)
	defer cancel()
	reports, err := r.reports.Read(ctx)
	return report.Loads(reports), err
}

// balance returns what this member's plans balance.
func (o *Options) balance() string {
	if o.ByLoad {
		return coverage.BalanceLoad
	}
	return coverage.BalanceNumber
}

// scrubFailed logs an error of the comparison or reports the missing permission behind it. It does not use report: a
// missing permission that is reported before the member has joined ends the member, and this one is not worth that.
func (r *Engine) scrubFailed(what string, err error) {
	if !r.state.HasJoined() || !r.refused(what, err) {
		r.log.Error(err, what)
	}
}
