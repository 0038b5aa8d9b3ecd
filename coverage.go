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
	// scrubShare: of the time, the member with that duty spends one part in so many on lists of what there is, and the API
	// server about as much, but no more than one look in scrubLatest is without them.
	scrubShare  = 1000
	scrubLatest = 10 * time.Minute
	// scrubFirst is the time to the first list of a member that has got that duty.
	scrubFirst = time.Minute
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

// What is wrong shows in two looks (see compare), with a report of each member between them. So it is found within a quarter
// of a lease, for the report, and two looks.
func reportPeriod(lease time.Duration) time.Duration { return lease / 4 }
func lookPeriod(lease time.Duration) time.Duration   { return lease * 7 / 20 }

// publish publishes the report when it changed, every reportPeriod at most, until the incarnation ends; then it withdraws it.
func (i *incarnation) publish() {
	tick := time.NewTicker(reportPeriod(i.cfg.LeaseDuration))
	defer tick.Stop()
	var last map[string]string
	denied := false
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
		if refusal := (*store.PermissionError)(nil); errors.As(err, &refusal) {
			// An API server that has just started refuses what it permits a moment later.
			if !denied {
				i.log.Info("Not telling what this member holds, so that nobody can check it; trying again", "cause", refusal.Error())
			}
			denied = true
			continue
		}
		if err != nil {
			if i.ctx.Err() == nil {
				i.log.V(1).Info("Cannot publish what this member holds; trying again", "cause", err.Error())
			}
			continue
		}
		last, denied = text, false
	}
}

// scrub compares what members hold with the table, and now and then with what there is, as long as this member has that duty, and
// tells what is wrong.
func (i *incarnation) scrub() {
	duty := i.cfg.Slots.Of(slot.HashName("", scrubName))
	// There is enough to be listed when members come and go.
	first := func() scrubber { return scrubber{due: i.now() + i.scrubPeriod(scrubFirst/scrubShare)} }
	s := first()
	tick := time.NewTicker(lookPeriod(i.cfg.LeaseDuration))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-i.ctx.Done():
			i.scrubbed.set(nil, 0)
			return
		}
		if !i.gate.Owns(duty) {
			i.scrubbed.set(nil, 0)
			s = first()
			continue
		}
		findings, err := i.compare(&s)
		if err != nil {
			if i.ctx.Err() == nil {
				i.log.V(1).Info("Cannot compare what members hold with what there is; trying again", "cause", err.Error())
			}
			continue
		}
		i.scrubbed.set(findings, 1)
		i.tellFindings(findings, &s)
	}
}

// scrubber is what a member remembers from one comparison to the next.
type scrubber struct {
	owners, objects coverage.Tracker
	// due is the time of the next list of all objects, differing what the last list confirmed.
	due       time.Duration
	again     bool // it is listed to decide about what the list before showed
	differing []coverage.Finding
	told      map[coverage.Finding]bool
}

// compare returns the findings that were there the last time, too.
func (i *incarnation) compare(s *scrubber) ([]coverage.Finding, error) {
	t := i.tableOf()
	if t.Slots == 0 {
		return nil, errors.New("there is no table")
	}
	census, listed := coverage.Digests(nil), i.now() >= s.due
	if listed {
		begun := i.now()
		var err error
		census, err = i.share.Census(i.ctx)
		s.due = i.now() + i.scrubPeriod(i.now()-begun)
		if err != nil {
			listed = false // who owns what can be told without
			i.log.Error(err, "Cannot list what there is, to compare it with what members hold; trying again", "after", (s.due - i.now()).String())
		}
	}
	reports, err := i.reports.Read(i.ctx)
	if len(reports) == 0 && err != nil {
		return nil, err
	}
	if err != nil {
		i.log.Error(err, "Cannot read all reports of what members hold")
	}
	var owners, objects []coverage.Finding
	for _, f := range coverage.Compare(t, reports, census) {
		if f.What == coverage.Differs || f.What == coverage.Unread {
			objects = append(objects, f)
		} else {
			owners = append(owners, f)
		}
	}
	if listed {
		s.differing = s.objects.Confirm(objects)
		// The next look decides about what may be the difference of two moments, once.
		if s.again = len(objects) > 0 && !s.again; s.again {
			s.due = 0
		}
	}
	return append(s.owners.Confirm(owners), s.differing...), nil
}

// scrubPeriod returns the time to the next lists, where the last ones took so long.
func (i *incarnation) scrubPeriod(took time.Duration) time.Duration {
	if i.opts.ScrubPeriod > 0 {
		return i.opts.ScrubPeriod
	}
	return min(scrubShare*took, scrubLatest)
}

// tellFindings tells what was not told before.
func (i *incarnation) tellFindings(findings []coverage.Finding, s *scrubber) {
	now := map[coverage.Finding]bool{}
	fresh := 0
	for _, f := range findings {
		same := f.Same()
		now[same] = true
		if s.told[same] || f.What == coverage.Silent {
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
	s.told = now
}
