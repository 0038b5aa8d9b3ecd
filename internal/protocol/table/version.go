package table

import (
	"maps"
	"strings"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// List replaces, in a note, a version that is not a decimal number, as those of some aggregated API servers. Nobody can
// tell whether such a version was reached, so the new owner lists the objects of that kind. List is above every
// version.
const List = resourceversion.List

// Readable returns the versions as a note can have them: one that is not a decimal number becomes List. If a note
// cannot have the name of a kind, Readable returns no versions, and ok is false.
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
