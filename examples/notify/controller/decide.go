package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

const (
	// settle is how long an object has to be in order until a failure is over. The kubelet takes as long to forget that a
	// container crashed. Otherwise every round of a crash loop would be told.
	settle = 10 * time.Minute
	// mostNotices is how many notices of one object may wait. Beyond it, the oldest are dropped.
	mostNotices = 50
)

// seen is what is to be known of an object.
type seen struct {
	object      notice.Object
	version     string
	created     time.Time
	fingerprint string
	health      health
}

// rules say what is told.
type rules struct {
	kind *config.Kind
	// since is when the kind was first followed. The creation of older objects is not told.
	since        time.Time
	destinations []wanter
}

// wanter is a destination.
type wanter interface {
	Name() string
	Wants(t notice.Type) bool
}

// decision is what follows from an object's state and its record.
type decision struct {
	// record is the new one; nil: none is needed.
	record *record
	// write says that the record differs from the former one.
	write bool
	// presence says that it is about whether the object exists, or which one does. A cache may be behind, so look at the
	// object itself before the record is written.
	presence bool
	// again says when the outcome may change without an event. 0: never.
	again time.Duration
	// dropped are notices that nobody will be told, by destination.
	dropped map[string]int
}

// decide compares an object with its record. Either may be nil: an object that is gone, and one without a record. It
// changes neither. It is a pure function.
func (r rules) decide(obj *seen, old *record, now time.Time) decision {
	var d decision
	next := old.clone()
	switch {
	case obj == nil && next == nil:
		return d
	case obj == nil:
		if !next.Gone {
			d.presence = true
			next.Gone = true
			r.tell(next, notice.Deleted, "", "", now)
		}
	case next == nil:
		next = r.begin(obj, &record{}, now)
		d.presence = true
	case next.Object.UID != obj.object.UID || next.Gone:
		d.presence = true
		if !next.Gone {
			r.tell(next, notice.Deleted, "", "", now)
		}
		next = r.begin(obj, next, now)
	}
	if obj != nil {
		d.again = r.compare(obj, next, now)
		if next.differs(old) {
			next.Version = obj.version
		}
	}
	d.dropped = next.trim()
	if len(next.Outbox) == 0 && (next.Gone || !r.keeps(next)) {
		return decision{write: old != nil, presence: d.presence && old != nil, again: d.again}
	}
	d.record, d.write = next, next.differs(old)
	return d
}

// keeps says whether the record of an object has to stay although nothing waits to be told.
func (r rules) keeps(rec *record) bool {
	return r.kind.Wants(notice.Deleted) || r.kind.Wants(notice.Changed) || rec.Count > 0
}

// begin makes a record be about an object that it was not about.
func (r rules) begin(obj *seen, rec *record, now time.Time) *record {
	rec.Object, rec.Gone, rec.Fingerprint = obj.object, false, obj.fingerprint
	rec.Failing, rec.FailingSince = nil, time.Time{}
	if !obj.created.Before(r.since) {
		r.tell(rec, notice.Created, "", "", now)
	}
	return rec
}

// compare notes what has changed about an object.
func (r rules) compare(obj *seen, rec *record, now time.Time) (again time.Duration) {
	if rec.Fingerprint != obj.fingerprint && obj.fingerprint != "" {
		if rec.Fingerprint != "" { // otherwise changes were not told so far
			r.tell(rec, notice.Changed, "", "", now)
		}
		rec.Fingerprint = obj.fingerprint
	}
	h := obj.health
	if len(rec.Failing) > 0 && !h.healthySince.IsZero() {
		if again = h.healthySince.Add(settle).Sub(now); again <= 0 {
			again, rec.Failing, rec.FailingSince = 0, nil, time.Time{}
		}
	}
	if h.reason != "" && r.kind.WantsReason(h.reason) && !slices.Contains(rec.Failing, h.reason) {
		if len(rec.Failing) == 0 {
			rec.FailingSince = now.UTC().Truncate(time.Second)
		}
		rec.Failing = append(rec.Failing, h.reason)
		r.tell(rec, notice.Failing, h.reason, h.message, now)
	}
	return again
}

// tell adds a notice for each destination that wants it.
func (r rules) tell(rec *record, t notice.Type, reason, message string, now time.Time) {
	var to []string
	for _, d := range r.destinations {
		if d.Wants(t) {
			to = append(to, d.Name())
		}
	}
	if len(to) == 0 || !r.kind.Wants(t) {
		return
	}
	if last := len(rec.Outbox) - 1; t == notice.Changed && last >= 0 && rec.Outbox[last].Type == t {
		rec.Outbox = rec.Outbox[:last] // one notice of the newest change will do
	}
	rec.Count++
	n := notice.Notice{
		ID:   fmt.Sprintf("%s-%d-%s", rec.Object.UID, rec.Count, t),
		Type: t, Object: rec.Object, Reason: reason, Message: shorten(message), Time: now.UTC().Truncate(time.Millisecond),
	}
	rec.Outbox = append(rec.Outbox, entry{Notice: n, To: to})
}

// longestMessage keeps records small, in bytes.
const longestMessage = 500

func shorten(message string) string {
	if len(message) <= longestMessage {
		return message
	}
	return strings.ToValidUTF8(message[:longestMessage], "") + " …"
}
