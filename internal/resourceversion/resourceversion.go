// Package resourceversion compares the resourceVersions of Kubernetes' objects.
package resourceversion

import "strings"

// List stands in the place of a version that is no decimal number, as those of some aggregated API servers: nobody can
// tell whether it was reached. It is above every version.
const List = "list"

// Compare compares two resourceVersions as Kubernetes defines it since 1.35: as decimal numbers of any length without
// leading zeros. An empty version is below every other.
// See k8s.io/apimachinery/pkg/util/resourceversion, which refuses what is no number; here that has been done before:
// by table.Valid.
func Compare(a, b string) int {
	switch {
	case a == b:
		return 0
	case b == List:
		return -1
	case a == List:
		return 1
	case len(a) < len(b):
		return -1
	case len(a) > len(b):
		return 1
	default:
		return strings.Compare(a, b)
	}
}
