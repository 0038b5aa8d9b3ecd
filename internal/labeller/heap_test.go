package labeller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/test/require"
)

// TestHeap: the memory of the labeller does not grow with the number of labelled objects.
func TestHeap(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes 100,000 objects")
	}
	small, large := heap(t, 1000), heap(t, 100_000)
	t.Logf("most live heap, scanned and watched: %.1f MB with 1,000 labelled objects, %.1f MB with 100,000", small, large)
	if large > small+10 {
		t.Errorf("%.1f MB more", large-small)
	}
}

// heap returns the most live heap, in MB, of a labeller that scans n labelled objects, and for a moment after. What it
// gives was taken before the server answers a page, when the page before was done with, and while there is one.
func heap(t *testing.T, n int) float64 {
	f := newFake(t)
	var most, pages atomic.Int64
	measure := func() {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), int64(m.HeapAlloc)))
	}
	f.handle(func(verb string, w http.ResponseWriter, r *http.Request) bool {
		if verb != "list" || r.URL.Query().Get("labelSelector") != "" {
			return false
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
			Kind: "PartialObjectMetadataList"}}
		for i := from; i < min(from+500, n); i++ {
			name := fmt.Sprintf("object-%d", i)
			list.Items = append(list.Items, partial(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, UID: "4a1f1c5e-0000-0000-0000-000000000000",
				Labels: map[string]string{label: right(name), "app": "x"}, ResourceVersion: strconv.Itoa(i),
			}}))
		}
		if from+500 < n {
			list.Continue = strconv.Itoa(from + 500)
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(list)
		if pages.Add(1)%10 == 1 {
			measure()
		}
		return true
	})
	// Not started by start: what it leaves to the end of the test would count.
	l, err := labeller.New(f.config(), labeller.Options{Label: label,
		Resources: append(labeller.Options{}.Resources, configMaps), ScanRate: 1e9})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { l.Run(ctx) })
	eventually(t, "scanned", func() bool { return l.Stats().Scans == 1 })
	if got := l.Stats(); got.Scanned != uint64(n) || got.Patched != 0 {
		t.Fatalf("stats %+v", got)
	}
	measure()
	cancel()
	run.Wait()
	l.CloseIdle()
	return float64(most.Load()) / 1e6
}
