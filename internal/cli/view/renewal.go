package view

import (
	"context"
	"net/http"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Whether a member renews its Lease follows from when the Lease was written, not from the time in it: that one is by
// the clock of the member's machine, and this machine has another. When it was written is known in two ways:
//
//   - The API server says so in the Lease's managedFields, and its time now in the header Date of the list. Both are in
//     whole seconds, so that their difference is up to 1 s too short or too long. One look is enough.
//   - A Reader that looks again sees that the Lease has changed, or has not. This takes no clock but the monotonic one
//     of this machine.

// dateGrain is how much too long the difference of two times of the API server may be.
const dateGrain = time.Second

// listing is when Leases were listed.
type listing struct {
	// begun and ended are by this machine's clock, date by the API server's, and zero if it does not say.
	begun, ended, date time.Time
}

// sighting is what a Reader has seen of a Lease.
type sighting struct {
	version string
	// since is the end of the first list that had this version, before the start of the last one that had another; zero:
	// there was none.
	since, before time.Time
}

// ages returns for how long Leases have not been written, at least, by their holders. Those without are not known.
func (m *memory) ages(in input) map[string]time.Duration {
	if in.noLeases {
		return nil
	}
	out, seen := map[string]time.Duration{}, map[string]sighting{}
	for id, l := range in.leases {
		version := string(l.UID) + " " + l.ResourceVersion
		s, again := m.leases[id]
		if !again || s.version != version {
			s = sighting{version: version, since: in.listed.ended}
			if again {
				s.before = m.listed.begun
			}
		}
		seen[id] = s
		age := max(0, in.listed.begun.Sub(s.since))
		known := !s.before.IsZero() || age > durationOf(l)
		if at, ok := written(l); ok && !in.listed.date.IsZero() {
			told := in.listed.date.Sub(at) - dateGrain
			if !s.before.IsZero() { // the clocks of several API servers may differ
				told = min(told, in.listed.ended.Sub(s.before))
			}
			age, known = max(age, told), true
		}
		if known {
			out[id] = age
		}
	}
	m.leases, m.listed = seen, in.listed
	return out
}

// noAge says whether it is not known if some member renews its Lease.
func noAge(in input) bool {
	return slices.ContainsFunc(in.table.Members, func(m table.Member) bool {
		_, there := in.leases[m.ID]
		_, known := in.ages[m.ID]
		return there && !known
	})
}

// now returns the API server's time at in.at, or this machine's if it is not known.
func (in input) now() time.Time {
	if in.listed.date.IsZero() {
		return in.at
	}
	return in.at.Add(in.listed.date.Sub(in.listed.ended))
}

// skewOfServers is how far the clocks of two API servers may differ. A report's time is by the one that took it.
const skewOfServers = 10 * time.Second

// sort parts reports that are too old to say anything from the others. One that was renewed since the last look is none
// of them, whatever the clocks say.
func (m *memory) sort(in *input) {
	bounds, serials := coverage.BoundsBy(in.reports), map[string]uint64{}
	all := in.reports
	in.reports, in.stale = nil, map[string]time.Duration{}
	for _, r := range all {
		last, again := m.serials[r.Member]
		serials[r.Member] = r.Serial
		age, known := in.reportAge(r)
		limit := max(bounds.Stale, 2*durationOf(in.leases[r.Member])) + skewOfServers
		if known && age > limit && (!again || last == r.Serial) {
			in.old, in.stale[r.Member] = append(in.old, r), age
			continue
		}
		in.reports = append(in.reports, r)
	}
	m.serials = serials
}

// reportAge returns how old a report is at least; false: that is not known.
func (in input) reportAge(r *coverage.Report) (age time.Duration, known bool) {
	if in.listed.date.IsZero() || r.Written.IsZero() {
		return 0, false
	}
	return in.listed.date.Sub(r.Written) - dateGrain, true
}

func durationOf(l coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
}

// written returns when a Lease was renewed last, by the clock of the API server that wrote it, in whole seconds. What
// others changed in it does not count.
func written(l coordinationv1.Lease) (at time.Time, ok bool) {
	at = coverage.Written(&l, "f:renewTime")
	return at, !at.IsZero()
}

// dateKey is the key of a context's *time.Time that takes the header Date of the answer.
type dateKey struct{}

// dating is a transport that tells the API server's time to those who ask for it by dateKey.
type dating struct{ inner http.RoundTripper }

// withDate returns a context for one request. date is set once that was answered.
func withDate(ctx context.Context) (asking context.Context, date *time.Time) {
	date = new(time.Time)
	return context.WithValue(ctx, dateKey{}, date), date
}

func (d dating) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.inner.RoundTrip(r)
	if date, asked := r.Context().Value(dateKey{}).(*time.Time); asked && err == nil {
		*date, _ = http.ParseTime(answer.Header.Get("Date")) // zero: not known
	}
	return answer, err
}

// WrappedRoundTripper is for client-go, which closes idle connections through it.
func (d dating) WrappedRoundTripper() http.RoundTripper { return d.inner }
