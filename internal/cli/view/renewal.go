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

// A Lease's age is computed from when it was written, because renewTime is by the clock of the member's machine. There
// are two ways to know when it was written:
//
//   - The API server records it in the Lease's managedFields, and its current time in the Date header of the list. Both
//     are in whole seconds, so the difference may be off by up to 1 s. One read is enough.
//   - A Reader sees whether the Lease changed since its last read. This only needs this machine's monotonic clock.

// dateGrain is the largest error of the difference of two API server times.
const dateGrain = time.Second

// listing is the time of a list of Leases.
type listing struct {
	// begun and ended are by this machine's clock, date by the API server's. date is zero if unknown.
	begun, ended, date time.Time
}

// sighting is a Reader's observation of a Lease.
type sighting struct {
	version string
	// since is the end of the first list with this version. before is the start of the last list with another version, or
	// zero.
	since, before time.Time
}

// ages returns lower bounds on the ages of the Leases, by holder. Leases of unknown age are missing.
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
			atLeast := in.listed.date.Sub(at) - dateGrain
			if !s.before.IsZero() { // API servers' clocks may differ
				atLeast = min(atLeast, in.listed.ended.Sub(s.before))
			}
			age, known = max(age, atLeast), true
		}
		if known {
			out[id] = age
		}
	}
	m.leases, m.listed = seen, in.listed
	return out
}

// noAge reports whether the age of any member's Lease is unknown.
func noAge(in input) bool {
	return slices.ContainsFunc(in.table.Members, func(m table.Member) bool {
		_, there := in.leases[m.ID]
		_, known := in.ages[m.ID]
		return there && !known
	})
}

// now returns the API server's time at in.at, or this machine's time if that is unknown.
func (in input) now() time.Time {
	if in.listed.date.IsZero() {
		return in.at
	}
	return in.at.Add(in.listed.date.Sub(in.listed.ended))
}

// skewOfServers bounds the difference between two API servers' clocks. Each report is timed by the server that wrote
// it.
const skewOfServers = 10 * time.Second

// sort separates outdated reports from the others. A report that changed since the last read is never outdated.
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

// reportAge returns a lower bound on a report's age. ok is false if it is unknown.
func (in input) reportAge(r *coverage.Report) (age time.Duration, known bool) {
	if in.listed.date.IsZero() || r.Written.IsZero() {
		return 0, false
	}
	return in.listed.date.Sub(r.Written) - dateGrain, true
}

func durationOf(l coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
}

// written returns when a Lease was last renewed, in whole seconds, by the clock of the API server that wrote it. Other
// changes do not count.
func written(l coordinationv1.Lease) (at time.Time, ok bool) {
	at = coverage.Written(&l, "f:renewTime")
	return at, !at.IsZero()
}

// dateKey is the context key of the *time.Time that receives the answer's Date header.
type dateKey struct{}

// dating is a transport that stores the API server's time in a context's dateKey.
type dating struct{ inner http.RoundTripper }

// withDate returns a context for one request. date is set when it is answered.
func withDate(ctx context.Context) (asking context.Context, date *time.Time) {
	date = new(time.Time)
	return context.WithValue(ctx, dateKey{}, date), date
}

func (d dating) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.inner.RoundTrip(r)
	if date, asked := r.Context().Value(dateKey{}).(*time.Time); asked && err == nil {
		*date, _ = http.ParseTime(answer.Header.Get("Date")) // zero if unknown
	}
	return answer, err
}

// WrappedRoundTripper is for client-go, which closes idle connections through it.
func (d dating) WrappedRoundTripper() http.RoundTripper { return d.inner }
