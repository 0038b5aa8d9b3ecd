// Package mutant builds bugs into the product on purpose, to test whether its checks find them.
//
// The product does not know about mutants. A mutant is a patch (bugs/*.diff) that reads like the bug. A patch that
// omits a clause of the protocol is a mutant too (clauses/*.diff). Write copies the patched files, with all mutants in
// them, and makes an overlay for the go command that replaces the files by the copies. In programs built with the
// overlay, the environment variable ROTA_MUTANT names the one active mutant (package active). Never ship such a
// program.
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
	// Clause says that the bug omits a clause of the protocol.
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
