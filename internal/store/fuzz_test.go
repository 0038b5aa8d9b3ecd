package store

import (
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// FuzzReadLease: whatever somebody wrote into a Lease's annotations, what is read can be written and read again, its
// gate is open unless it says that it is shut, and its epoch leaves room for a table above it.
func FuzzReadLease(f *testing.F) {
	f.Add("1763712345071", names.GateShut, "1", "u")
	f.Add("18446744073709551616", "", "99999999999999999999", "")
	f.Add("-1", "SHUT", "x", "u v")
	f.Fuzz(func(t *testing.T, epoch, gate, format, uid string) {
		obj := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			names.AnnotationEpoch: epoch, names.AnnotationGate: gate, names.AnnotationFormat: format, names.AnnotationTableUID: uid,
		}}}
		lease := readLease("m", obj)
		if n, err := strconv.ParseUint(epoch, 10, 64); err != nil && lease.Epoch != 0 || err == nil && lease.Epoch != 0 && lease.Epoch != n {
			t.Errorf("epoch %q is read as %d", epoch, lease.Epoch)
		}
		if lease.Epoch >= table.MaxEpoch {
			t.Errorf("epoch %q is read as %d, above which no table can be", epoch, lease.Epoch)
		}
		if lease.Open != (gate != names.GateShut) {
			t.Errorf("gate %q is read as open: %v", gate, lease.Open)
		}
		putLease(obj, lease, time.Second, time.Unix(1, 0))
		if again := readLease("m", obj); again != lease {
			t.Errorf("read %+v, then %+v", lease, again)
		}
	})
}
