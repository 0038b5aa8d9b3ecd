package rota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/store"
)

const (
	// scrubName is the duty of comparing what members hold with what there is: it is where the slot of its name is.
	scrubName = "rota.dev/scrub"
	// scrubShare: of the time, a member spends at most one part in so many on scrubs, and the API server about as much.
	scrubShare = 50
	// scrubNotices is how many findings are told one by one.
	scrubNotices = 3
	// withdrawTimeout bounds the last request of a member.
	withdrawTimeout = 2 * time.Second
)

// scrubbed is what the last scrub of this member found.
type scrubbed struct {
	mu       sync.Mutex
	scrubs   uint64
	findings []coverage.Finding
}

func (s *scrubbed) set(findings []coverage.Finding, scrubs uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings = findings
	s.scrubs += scrubs
}

func (s *scrubbed) get() (findings []coverage.Finding, scrubs uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findings, s.scrubs
}

// holdings says what this member holds, as of now (rule R14).
func (i *incarnation) holdings() *coverage.Report {
	open := i.gate.OpenSet()
	r := &coverage.Report{
		Member: i.id, Open: open, Digests: i.share.Digest(open),
		Owners: map[schema.GroupKind]map[schema.GroupKind]bool{}, Waiting: map[slot.Slot]time.Duration{},
	}
	for kind := range r.Digests {
		if owners := i.share.Owners(kind); owners != nil {
			r.Owners[kind] = owners
		}
	}
	since := map[slot.Slot]time.Duration{}
	for _, c := range i.registered() {
		c.oldest(since)
	}
	now := i.now()
	for s, at := range since {
		if age := now - at; age > time.Second && open.Has(s) {
			r.Waiting[s] = age
		}
	}
	return r
}

// publish publishes the report when it changed, every half lease at most, until the incarnation ends; then it withdraws it.
func (i *incarnation) publish() {
	tick := time.NewTicker(i.cfg.LeaseDuration / 2)
	defer tick.Stop()
	var last map[string]string
	for {
		select {
		case <-tick.C:
		case <-i.ctx.Done():
			if last != nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(i.ctx), withdrawTimeout)
				defer cancel()
				_ = i.reports.Withdraw(ctx, i.id) // it is owned by the Lease
			}
			return
		}
		lease := i.leaseUID.Load()
		if lease == nil {
			continue
		}
		report := i.holdings()
		text := report.Encode()
		if maps.Equal(text, last) {
			continue
		}
		err := i.reports.Publish(i.ctx, report, types.UID(*lease))
		if denied := (*store.PermissionError)(nil); errors.As(err, &denied) {
			i.log.Info("Not telling what this member holds, so that nobody can check it", "cause", denied.Error())
			return
		}
		if err != nil {
			if i.ctx.Err() == nil {
				i.log.V(1).Info("Cannot publish what this member holds; trying again", "cause", err.Error())
			}
			continue
		}
		last = text
	}
}

// scrub compares what members hold with what there is, as long as this member has that duty, and tells what is wrong.
func (i *incarnation) scrub() {
	period := i.cfg.LeaseDuration * 6 / 10 // longer than the time between two reports
	duty := i.cfg.Slots.Of(slot.HashName("", scrubName))
	var tracker coverage.Tracker
	told := map[coverage.Finding]bool{}
	wait := period
	for {
		select {
		case <-time.After(wait):
		case <-i.ctx.Done():
			i.scrubbed.set(nil, 0)
			return
		}
		wait = period
		if !i.gate.Owns(duty) {
			i.scrubbed.set(nil, 0)
			tracker, told = coverage.Tracker{}, map[coverage.Finding]bool{}
			continue
		}
		begun := i.now()
		findings, err := i.compare()
		wait = max(period, scrubShare*(i.now()-begun))
		if err != nil {
			if i.ctx.Err() == nil {
				i.log.V(1).Info("Cannot compare what members hold with what there is; trying again", "cause", err.Error())
			}
			continue
		}
		confirmed := tracker.Confirm(findings)
		i.scrubbed.set(confirmed, 1)
		i.tellFindings(confirmed, told)
	}
}

func (i *incarnation) compare() ([]coverage.Finding, error) {
	census, err := i.share.Census(i.ctx)
	if err != nil {
		return nil, err
	}
	reports, err := i.reports.Read(i.ctx)
	if err != nil {
		return nil, err
	}
	t := i.tableOf()
	if t.Slots == 0 {
		return nil, errors.New("there is no table")
	}
	return coverage.Compare(t, reports, census), nil
}

// tellFindings tells what was not told before.
func (i *incarnation) tellFindings(findings []coverage.Finding, told map[coverage.Finding]bool) {
	now := map[coverage.Finding]bool{}
	fresh := 0
	for _, f := range findings {
		f.Waiting = 0
		now[f] = true
		if told[f] || f.What == coverage.Silent {
			continue
		}
		if fresh++; fresh <= scrubNotices {
			i.notify(member.Notify{Reason: "Coverage", Warning: true, Message: f.String()})
		}
	}
	if fresh > scrubNotices {
		i.notify(member.Notify{Reason: "Coverage", Warning: true, Message: fmt.Sprintf(
			"%d more findings of that sort; `rota verify -n %s %s` lists them", fresh-scrubNotices, i.opts.Namespace, i.opts.Name)})
	}
	clear(told)
	maps.Copy(told, now)
}
