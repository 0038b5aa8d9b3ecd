// Package names defines the names, labels and annotations of a rota's objects in Kubernetes.
package names

import "strings"

// Prefix is the domain of all labels and annotations of the project.
const Prefix = "rota.dev"

// Labels and annotations of the table's ConfigMap and the members' Leases.
const (
	// LabelRota is a label on both, whose value is the rota's name.
	LabelRota = Prefix + "/rota"

	// LabelCoverage is a label on the Leases that contain members' reports, whose value is the rota's name. The members'
	// own Leases have LabelRota instead.
	LabelCoverage = Prefix + "/coverage"
	// LabelUnlabelled is a label on reports that list kinds with objects that cannot be labeled.
	LabelUnlabelled = Prefix + "/unlabelled"
	// AnnotationReport is the prefix of the annotations that contain a report.
	AnnotationReport = Prefix + "/report-"

	// AnnotationEpoch is, on a Lease, the highest epoch that the member has seen.
	AnnotationEpoch = Prefix + "/epoch"
	// AnnotationTableUID is, on a Lease, the UID of the table that the member has seen.
	AnnotationTableUID = Prefix + "/table-uid"
	// AnnotationGate is, on a Lease, GateOpen or GateShut.
	AnnotationGate = Prefix + "/gate"
	// AnnotationLongestWrite is, on a Lease, how long a write of the member may take, if that is longer than WriteTimeout.
	AnnotationLongestWrite = Prefix + "/longest-write"
	// AnnotationMemory is, on a Lease, how many bytes of memory the member uses, may use, and used when it last had no
	// slots.
	AnnotationMemory = Prefix + "/memory"
	// AnnotationPeer is, on a Lease, how other members reach the member (package peer).
	AnnotationPeer = Prefix + "/peer"
	// AnnotationFormat is, on a Lease, the newest table format that the member reads.
	AnnotationFormat = Prefix + "/format"

	// GateOpen means that the member's gate may be open. Every value other than GateShut is read as GateOpen.
	GateOpen = "open"
	// GateShut means that the member's gate is shut.
	GateShut = "shut"
)

// ElectionHolder is the prefix of a rota's holderIdentity in the leader election Lease. NAMESPACE/NAME follows.
const ElectionHolder = "rota:"

// FenceRefusal is the prefix of a fence's message when it refuses a write.
const FenceRefusal = "the fence of rota "

// Lease returns the name of a member's Lease. Rota names have no dot, so the Leases of two rotas in a namespace do not
// collide.
func Lease(rota, id string) string { return rota + "." + id }

// Member is the inverse of Lease. It returns false for a Lease that does not belong to a member of the rota.
func Member(rota, lease string) (id string, ok bool) {
	id, ok = strings.CutPrefix(lease, rota+".")
	return id, ok && id != ""
}
