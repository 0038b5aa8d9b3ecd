// Package names is what a rota calls its objects in Kubernetes, and their labels and annotations.
package names

import "strings"

// Prefix is the domain of all labels and annotations of the project.
const Prefix = "rota.dev"

// Labels and annotations of the table's ConfigMap and the members' Leases.
const (
	// LabelRota is the label, on both, whose value is the rota's name.
	LabelRota = Prefix + "/rota"

	// LabelCoverage is the label, on the Leases in which members say what they hold, whose value is the rota's name.
	// These are not the members' own, which have LabelRota.
	LabelCoverage = Prefix + "/coverage"
	// LabelUnlabelled is a label on those of them that name kinds whose objects cannot all be labelled.
	LabelUnlabelled = Prefix + "/unlabelled"
	// AnnotationReport begins the names of the annotations in which they say it.
	AnnotationReport = Prefix + "/report-"

	// AnnotationEpoch is, on a Lease, the highest epoch that the member has seen.
	AnnotationEpoch = Prefix + "/epoch"
	// AnnotationTableUID is, on a Lease, the UID of the table that the member has seen.
	AnnotationTableUID = Prefix + "/table-uid"
	// AnnotationGate is, on a Lease, GateOpen or GateShut.
	AnnotationGate = Prefix + "/gate"
	// AnnotationLongestWrite is, on a Lease, how long a write of the member may take at most, if that is longer than
	// WriteTimeout.
	AnnotationLongestWrite = Prefix + "/longest-write"
	// AnnotationMemory is, on a Lease, how many bytes of memory the member uses, may use, and used when it last had no
	// slot.
	AnnotationMemory = Prefix + "/memory"
	// AnnotationFormat is, on a Lease, the newest table format that the member reads.
	AnnotationFormat = Prefix + "/format"

	// GateOpen says that the member's gate may be open. Any other value than GateShut is read as GateOpen.
	GateOpen = "open"
	// GateShut says that the member's gate is shut.
	GateShut = "shut"
)

// ElectionHolder begins the name that a rota has as the holder of leader election's Lease; NAMESPACE/NAME follows.
const ElectionHolder = "rota:"

// FenceRefusal begins the messages with which a fence refuses writes.
const FenceRefusal = "the fence of rota "

// Lease returns the name of a member's Lease. The name of a rota has no dot, so that no two rotas of a
// namespace meet.
func Lease(rota, id string) string { return rota + "." + id }

// Member is the inverse of Lease; it returns false for a Lease that belongs to no member of the rota.
func Member(rota, lease string) (id string, ok bool) {
	id, ok = strings.CutPrefix(lease, rota+".")
	return id, ok && id != ""
}
