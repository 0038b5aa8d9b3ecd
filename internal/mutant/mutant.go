// Package mutant builds bugs into the product on purpose, to see whether its checks find them.
//
// The product knows nothing of it. A mutant is a patch (bugs/*.diff), which reads like the bug. A clause of the
// protocol that is left out is a mutant too (clauses/*.diff). Write makes copies of the patched files, with all mutants
// in them, and an overlay for the go command that puts the copies in the place of the files. In what is built with the
// overlay the environment variable ROTA_MUTANT names the one mutant that is active (package active). Never ship that.
package mutant

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Mutant is a bug that can be built in.
type Mutant struct {
	Name string
	// Clause says that the bug is a clause of the protocol that is left out.
	Clause bool
	// Package is where the bug is; "rota" is the root.
	Package string
	// About says what goes wrong, in a line.
	About string
	// edits are by file.
	edits map[string][]edit
}

//go:embed bugs/*.diff clauses/*.diff
var patches embed.FS

// All returns all mutants: the bugs by package and name, then the clauses by rule and name.
func All() ([]Mutant, error) {
	var all []Mutant
	for _, dir := range []string{"bugs", "clauses"} {
		files, err := fs.Glob(patches, dir+"/*.diff")
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := patches.ReadFile(file)
			if err != nil {
				return nil, err
			}
			m, err := parse(string(text))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			m.Name, m.Clause = strings.TrimSuffix(path.Base(file), ".diff"), dir == "clauses"
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, compare)
	return all, nil
}
