package store

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// putLease writes the member's state into the object, and keeps other fields.
func putLease(obj *coordinationv1.Lease, lease member.Lease, duration time.Duration, now time.Time) {
	annotations := maps.Clone(obj.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[names.AnnotationEpoch] = strconv.FormatUint(lease.Epoch, 10)
	annotations[names.AnnotationTableUID] = lease.TableUID
	annotations[names.AnnotationFormat] = strconv.Itoa(lease.Format)
	annotations[names.AnnotationGate] = names.GateShut
	if lease.Open {
		annotations[names.AnnotationGate] = names.GateOpen
	}
	delete(annotations, names.AnnotationLongestWrite)
	if lease.LongestWrite > 0 {
		annotations[names.AnnotationLongestWrite] = lease.LongestWrite.String()
	}
	delete(annotations, names.AnnotationMemory)
	if m := lease.Memory; m.Limit > 0 {
		annotations[names.AnnotationMemory] = fmt.Sprintf("%d %d %d", m.Used, m.Limit, m.Base)
	}
	obj.Annotations = annotations
	renewed := metav1.NewMicroTime(now)
	if obj.Spec.AcquireTime == nil {
		obj.Spec.AcquireTime = &renewed
	}
	obj.Spec.RenewTime = &renewed
	obj.Spec.HolderIdentity = ptr.To(lease.ID)
	obj.Spec.LeaseDurationSeconds = ptr.To(int32(max(1, duration/time.Second)))
}

// maxLeaseEpoch leaves room for the epoch of a new table, which must be above the epochs in Leases.
const maxLeaseEpoch = table.MaxEpoch / 2

// readLease parses what putLease wrote. It replaces unreadable values by the safest ones: a gate that is not clearly
// shut is open (rule R16). An epoch that is unreadable or impossible becomes 0, since a new table's epoch is also above
// the wall clock.
func readLease(id string, obj *coordinationv1.Lease) member.Lease {
	lease := member.Lease{
		ID: id, UID: string(obj.UID), Version: obj.ResourceVersion,
		TableUID: obj.Annotations[names.AnnotationTableUID],
		Open:     obj.Annotations[names.AnnotationGate] != names.GateShut,
	}
	epoch, err := strconv.ParseUint(obj.Annotations[names.AnnotationEpoch], 10, 64)
	if err == nil && epoch <= maxLeaseEpoch {
		lease.Epoch = epoch
	}
	if format, err := strconv.Atoi(obj.Annotations[names.AnnotationFormat]); err == nil {
		lease.Format = format
	}
	if text, announced := obj.Annotations[names.AnnotationLongestWrite]; announced {
		limit := time.Duration(ptr.Deref(obj.Spec.LeaseDurationSeconds, 0)+1) * time.Second // it was cut to whole seconds
		lease.LongestWrite = limit
		if longest, err := time.ParseDuration(text); err == nil && longest > 0 {
			lease.LongestWrite = min(longest, limit)
		}
	}
	lease.Memory = ReadMemory(obj)
	return lease
}

// ReadMemory returns the report of a member's memory in its Lease, or the zero value if the report is implausible.
func ReadMemory(obj *coordinationv1.Lease) (m planner.MemoryReport) {
	n, err := fmt.Sscanf(obj.Annotations[names.AnnotationMemory], "%d %d %d", &m.Used, &m.Limit, &m.Base)
	if err != nil || n != 3 || min(m.Used, m.Limit, m.Base) < 0 {
		return planner.MemoryReport{}
	}
	return m
}

// holder returns the Lease's holder.
func holder(obj *coordinationv1.Lease) string { return ptr.Deref(obj.Spec.HolderIdentity, "") }
