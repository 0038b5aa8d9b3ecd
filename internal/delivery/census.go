package delivery

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Census lists everything that the informers select and returns the digests of all slots: what all members together
// should hold. It covers the kinds that Digest knows and keeps one page of a list in memory at a time. Kinds that are
// not served are empty. Kinds that cannot be listed are missing from digests and are in failed. Objects that a user's
// selectors leave out do not count. The error is ctx's cause, if ctx ends.
func (s *Share) Census(ctx context.Context) (
	digests map[schema.GroupKind]map[slot.Slot]Digest, failed map[schema.GroupKind]error, err error,
) {
	out := map[schema.GroupKind]map[slot.Slot]Digest{}
	failed = map[schema.GroupKind]error{}
	seen := map[schema.GroupKind]map[uint64]struct{}{}
	for _, inf := range s.counted() {
		if out[inf.kind] == nil {
			out[inf.kind], seen[inf.kind] = map[slot.Slot]Digest{}, map[uint64]struct{}{}
		}
		if err := inf.count(ctx, out[inf.kind], seen[inf.kind]); err != nil && !notServed(err) {
			failed[inf.kind] = err
		}
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
	}
	for kind := range failed {
		delete(out, kind)
	}
	return out, failed, nil
}

func (i *informer) count(ctx context.Context, digests map[slot.Slot]Digest, seen map[uint64]struct{}) error {
	_, err := i.source.eachListed(ctx, censusPause, func(obj runtime.Object) error {
		about, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		n, _, ok := i.slotOf(obj)
		if !ok || i.adoptable(about) {
			return nil // orphans belong to no member
		}
		hash := i.share.digestHash(about)
		if _, again := seen[hash]; !again {
			seen[hash] = struct{}{}
			digests[n] = digests[n].with(hash)
		}
		return nil
	})
	return err
}

// censusPause is the pause between two pages of a census, so that a census takes a small part of the API server's time.
const censusPause = 20 * time.Millisecond
