package table

import (
	"maps"
	"strings"
)

// List stands in a note in the place of a version that is no decimal number, as those of some aggregated API servers:
// nobody can tell whether it was reached, so the new owner lists the objects of that kind. It is above every version.
const List = "list"

// CompareVersions compares two resourceVersions as Kubernetes defines it since 1.35: as decimal numbers of any
// length without leading zeros. An empty version is below every other.
// See k8s.io/apimachinery/pkg/util/resourceversion, which refuses what is no number; here that has been done by Valid.
func CompareVersions(a, b string) int {
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

// Readable returns the versions as they can stand in a note: what is no decimal number becomes List. ok is false where
// a kind cannot stand there; then nothing is known of it.
func (v Versions) Readable() (out Versions, ok bool) {
	for kind, version := range v {
		if !isWord(kind) || strings.Contains(kind, "=") {
			return nil, false
		}
		if isNumber(version) || version == List {
			continue
		}
		if out == nil {
			out = maps.Clone(v)
		}
		out[kind] = List
	}
	if out == nil {
		return v, true
	}
	return out, true
}
