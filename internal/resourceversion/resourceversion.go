// Package resourceversion compares the resourceVersions of Kubernetes objects.
package resourceversion

import "strings"

// List replaces a version that is not a decimal number, because such a version cannot be compared. Some aggregated API
// servers use such versions. List is above every version.
const List = "list"

// Compare compares two resourceVersions as Kubernetes defines it since 1.35: as decimal numbers of any length without
// leading zeros. An empty version is below every other. Unlike k8s.io/apimachinery/pkg/util/resourceversion, it does
// not check that they are numbers: table.Valid has done so.
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
