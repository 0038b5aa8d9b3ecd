package deliverytest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/feed"
)

// errForbidden is the answer of an API server to a client without permission.
var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "gadgets"}, "", errors.New("injected"))

// failing waits until the share says that exactly these requests fail.
func (r *rig) failing(want ...feed.Request) {
	r.t.Helper()
	r.eventually(func() error {
		var got []feed.Request
		for _, f := range r.share.Failing() {
			if f.Kind == r.kind.GroupKind && f.Err != nil && !f.Since.IsZero() {
				got = append(got, f.Request)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("failing requests %v, want %v", got, want)
		}
		return nil
	})
}

// The permission to watch is revoked. Changes come by lists, and the failure is reported.
func (s suite) watchRefused(t *testing.T) {
	r := s.rig(t)
	var told atomic.Int64
	r.must(r.informer.SetWatchErrorHandler(func(reflector *cache.Reflector, err error) {
		if reflector.Name() != "" && apierrors.IsForbidden(err) {
			told.Add(1)
		}
	}))
	mine := r.fill(2, 1, 2)
	r.run(r.informer)
	r.own(only(1))
	r.faults.RefuseWatches(errForbidden)
	r.failing(feed.RequestWatch)
	fresh := r.create(r.key(1))
	r.wantSeen(fresh.Key, fresh.Version)
	r.own(only(2)) // other slots come all the same
	r.wantStore(only(1, 2))
	if told.Load() == 0 {
		t.Error("the WatchErrorHandler was not called")
	}
	r.faults.RefuseWatches(nil)
	r.update(mine[0])
	r.sync()
	r.failing()
	r.wantStore(only(1, 2))
	r.wantLevel(only(1, 2))
}

// The API server does not answer, or something in front of it answers instead. The watch continues at its position when
// the server is back, unless only watches fail and lists do not.
func (s suite) watchUnanswered(t *testing.T) {
	err := error(apierrors.NewServiceUnavailable("injected"))
	if s.watchList {
		err = errors.New("connection reset by peer")
	}
	r := s.rig(t)
	r.run(r.informer)
	r.own(only(1))
	before := r.faults.Counts().Lists
	asked, failed := r.faults.Counts().Asked, r.faults.Counts().Failed
	r.faults.Refuse(err) // lists as well
	r.failing(feed.RequestWatch)
	fresh := r.create(r.key(1))
	r.faults.Refuse(nil)
	// After five watches in vain the kind is listed again. The one that was cut is the first of them, if it was new.
	brief := r.faults.Counts().Asked < asked+4
	r.wantSeen(fresh.Key, fresh.Version)
	r.failing()
	if after := r.faults.Counts().Lists; after != before && brief && r.faults.Counts().Failed == failed {
		t.Errorf("%d lists, although the position was never in doubt", after-before)
	}
	r.faults.RefuseWatches(err)
	fresh = r.create(r.key(1))
	r.wantSeen(fresh.Key, fresh.Version)
	r.failing(feed.RequestWatch)
	r.faults.RefuseWatches(nil)
	r.sync()
	r.failing()
	compactions := []bool{false}
	if r.kind.Compact != nil {
		compactions = append(compactions, true)
	}
	for _, compacted := range compactions {
		r.faults.Refuse(err) // until a list has been tried
		r.failing(feed.RequestList, feed.RequestWatch)
		r.update(fresh.Key)
		if compacted {
			r.kind.Compact() // then everything is listed
		}
		r.faults.Refuse(nil)
		r.failing()
	}
	r.update(fresh.Key)
	r.sync()
	r.wantLevel(only(1))
}

// An event cannot be decoded. It comes again whenever the watch is opened at its position, though the object has been
// repaired since.
func (s suite) eventCannotBeDecoded(t *testing.T) {
	r := s.rig(t)
	mine := r.fill(2, 1)
	r.run(r.informer)
	r.own(only(1))
	r.faults.Poison()
	r.update(mine[0])
	fixed := r.update(mine[0])
	r.wantSeen(fixed.Key, fixed.Version)
	gone := r.delete(mine[1])
	r.wantSeen(gone.Key, "")
	r.sync()
	r.failing()
	r.wantStore(only(1))
	r.wantLevel(only(1))
}

// The connection breaks in the middle of an event, which client-go does not tell from one that cannot be decoded. The
// watch continues at its position: a list of everything would come after a backoff of up to 30 s. If the connection
// breaks at the same event again and again, the kind is listed.
func (s suite) watchTorn(t *testing.T) {
	const reset = "stream error: stream ID 57; INTERNAL_ERROR; received from peer"
	r := s.rig(t)
	mine := r.fill(2, 1)
	r.run(r.informer)
	r.own(only(1))
	before := r.faults.Counts().Lists
	r.faults.Tear(reset, "http2: client connection lost", reset)
	first := r.update(mine[0])
	r.wantSeen(first.Key, first.Version)
	r.sync()
	r.failing()
	if after := r.faults.Counts().Lists; after != before {
		t.Errorf("%d lists, although the position was never in doubt", after-before)
	}
	r.faults.Tear(reset, reset, reset, reset, reset)
	next := r.update(mine[1])
	r.wantSeen(next.Key, next.Version)
	r.sync()
	r.failing()
	if after := r.faults.Counts().Lists; after == before {
		t.Error("no list, although five watches in a row broke at the same position")
	}
	r.wantStore(only(1))
	r.wantLevel(only(1))
}
