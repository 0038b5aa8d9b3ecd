package feed

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// BenchmarkDigest is what a report of what a member holds costs that has 100,000 objects, when nothing came or went
// since the last one and when something has in one slot. Unmute is what the goroutine that renews the Lease waits for
// where slots open.
func BenchmarkDigest(b *testing.B) {
	s := newCommon(sharding.Options{})
	require.NoError(b, s.Shard(configMapKind))
	inf := NewInformer(s, configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	inf.Running, inf.Sharded, inf.Role = true, true, sharding.Role{Primary: true}
	inf.Source.on.Store(true)
	require.NoError(b, inf.AddIndexers(cache.Indexers{slotIndex: inf.indexSlot}))
	for i := range 100_000 {
		require.NoError(b, inf.GetIndexer().Add(configMap("namespace", "object-"+strconv.Itoa(i), "")))
	}
	digests := NewReports(s)
	all := slot.SetOf(slot.Range{First: 0, Last: 255})
	s.hold(all)
	b.Run("AtRest", func(b *testing.B) {
		for b.Loop() {
			digests.Digest(all)
		}
	})
	b.Run("OneSlot", func(b *testing.B) {
		for b.Loop() {
			inf.sums.touched(7)
			digests.Digest(all)
		}
	})
	b.Run("All", func(b *testing.B) {
		for b.Loop() {
			inf.sums.touchedAll()
			digests.Digest(all)
		}
	})
	b.Run("Unmute", func(b *testing.B) {
		for b.Loop() {
			s.Unmute(all)
		}
	})
}
