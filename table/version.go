package table

import (
	"maps"
	"strings"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// List stands in a note in the place of a version that is no decimal number, as those of some aggregated API servers:
// nobody can tell whether it was reached, so the new owner lists the objects of that kind. It is above every version.
const List = resourceversion.List

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
