package delivery

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// caches returns the informers of a kind, those of NewWholeInformer last.
func (s *Share) caches(kind schema.GroupKind) (out []ledger.Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, inf := range slices.Concat(s.informers, s.besides) {
		if inf.kind == kind {
			out = append(out, ledger.Cache{Stored: inf.stored, Runs: inf.running, Whole: inf.apart, ByOwner: inf.byOwner})
		}
	}
	return out
}

// views returns the running informers whose versions a key stands for.
func (s *Share) views(key string) []ledger.View {
	var out []ledger.View
	for _, inf := range s.viewing(key) {
		out = append(out, inf)
	}
	return out
}

func (s *Share) viewing(key string) []*informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*informer
	for _, inf := range s.besides {
		if inf.running && inf.wholeKey() == key {
			out = append(out, inf)
		}
	}
	for _, inf := range s.informers {
		if inf.running && inf.versionKey() == key {
			out = append(out, inf)
		}
	}
	return out
}

// stored returns the metadata of the object of that name in the informer's store; nil if there is none.
func (i *informer) stored(name types.NamespacedName) metav1.Object {
	obj, exists, err := i.GetIndexer().GetByKey(cache.NamespacedNameAsObjectName(name).String())
	if err != nil || !exists {
		return nil
	}
	about, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return about
}

// Shows implements ledger.View.
func (i *informer) Shows(name types.NamespacedName, uid types.UID) bool {
	about := i.stored(name)
	return about == nil || about.GetUID() != uid
}

// readProof reads the present version of a kind. It returns "" if nobody can be behind: the kind is not served, or no
// informer of it runs.
func (s *Share) readProof(ctx context.Context, key string) (string, error) {
	views := s.viewing(key)
	if len(views) == 0 {
		return "", nil
	}
	inf := views[0]
	version, err := inf.source.readVersion(ctx)
	if inf.source.answered(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("informer of %s: %w", inf.kind, err)
	}
	return version, nil
}

// wholeKey returns the key in table.Versions of an informer that holds all objects.
func (i *informer) wholeKey() string {
	if i.apart {
		return ledger.WholeKey(i.kind)
	}
	return i.kind.String()
}

func (i *informer) versionKey() string { return ledger.Key(i.kind, i.share.Role(i.kind), i.role) }

// Versions returns, per kind, the highest resourceVersion that this member saw or wrote in the slots, deletions
// included (rule R8); for kinds that are cached whole, the highest that it wrote. Settle finds versions for writes
// without one. If it could not, the version is table.List. Kinds without a version are left out. A kind that is primary
// and owned has two keys.
func (s *Share) Versions(set slot.Set) table.Versions {
	out := s.Written(set)
	hashes := s.hashes(set)
	for _, inf := range s.active() {
		all := inf.withOrphans(hashes)
		ledger.Raise(out, inf.versionKey(), inf.source.highest(all.Slots()))
	}
	return out
}
