package mutant

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the product.
const Module = "github.com/rota-dev/rota"

// activate is the file that selects the mutant in a program built with the overlay.
const activate = `package active

import "os"

func init() {
	switch name = os.Getenv(Variable); name {
	case "", %s:
	default:
		panic("there is no mutant " + name)
	}
}
`

// Write writes copies of the product's files to a directory, with all mutants in them. It returns the overlay file
// there, for go build -overlay FILE. Root is the directory of the module. It is an error if a patch does not apply.
func Write(dir, root string) (overlay string, err error) {
	all, err := All()
	if err != nil {
		return "", err
	}
	texts, err := mutated(all, root)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(all))
	for _, m := range all {
		names = append(names, fmt.Sprintf("%q", m.Name))
	}
	texts["test/mutant/active/activate.go"] = fmt.Sprintf(activate, strings.Join(names, ", "))
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = to
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// mutated returns the texts of the files that mutants edit, with all mutants in them.
func mutated(all []Mutant, root string) (map[string]string, error) {
	files := map[string]bool{}
	for _, m := range all {
		for file := range m.edits {
			files[file] = true
		}
	}
	texts := map[string]string{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}
		if texts[file], err = compose(file, string(text), all); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// Root returns the root directory of the module that contains a directory.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+Module+"\n") {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", fmt.Errorf("this is no directory of module %s", Module)
		}
		dir = filepath.Dir(dir)
	}
}
