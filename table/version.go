package table

import "strings"

// CompareVersions compares two resourceVersions as Kubernetes defines it since 1.35: as decimal numbers of any
// length without leading zeros. An empty version is below every other.
// See k8s.io/apimachinery/pkg/util/resourceversion, which refuses what is no number; here that has been done by Valid.
func CompareVersions(a, b string) int {
	switch {
	case len(a) < len(b):
		return -1
	case len(a) > len(b):
		return 1
	default:
		return strings.Compare(a, b)
	}
}
