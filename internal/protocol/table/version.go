package table

import (
	"maps"
	"strings"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// List replaces a version in a note that is not a decimal number, as with some aggregated API servers. The new owner
// cannot compare such a version, so it lists the objects of that kind. List is above every version.
const List = resourceversion.List

// Readable returns the versions in the form of a note: a version that is not a decimal number becomes List. If a note
// cannot hold the name of a kind, Readable returns no versions, and ok is false.
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
