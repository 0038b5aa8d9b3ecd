package adopt

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLineEnds: a file's lines end as they did.
func TestLineEnds(t *testing.T) {
	for name, test := range map[string]struct{ file, old, add, want string }{
		"YAML":  {"a.yaml", "a: 1\r\nb: 2\r\n", "c: 3\n", "c: 3\r\na: 1\r\nb: 2\r\n"},
		"Go":    {"a.go", "package a\r\n\r\nvar x = 1\r\n", "// A comment.\n", "// A comment.\r\npackage a\r\n\r\nvar x = 1\r\n"},
		"LF":    {"a.yaml", "a: 1\n", "c: 3\n", "c: 3\na: 1\n"},
		"mixed": {"a.yaml", "a: 1\r\nb: 2\n", "c: 3\n", "c: 3\na: 1\r\nb: 2\n"},
	} {
		f := &fileEdit{old: []byte(test.old), changes: []change{{0, 0, test.add}}}
		if got, err := f.result(test.file); err != nil || string(got) != test.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test.want)
		}
	}
}

// TestPatch: git applies what Diff prints, with and without an end of the last line.
func TestPatch(t *testing.T) {
	for name, test := range map[string][2]string{
		"both have an end": {"a\nb\nc\n", "a\nx\nc\n"},
		"neither has":      {"a\nb\nc", "a\nx\nc"},
		"the old has none": {"a\nb\nc", "a\nb\nc\nd\n"},
		"the new has none": {"a\nb\nc\nd\n", "a\nb\nc"},
		"the last changes": {"a\nb\nc", "a\nb\nd"},
		"new":              {"", "a\nb\n"},
	} {
		dir := t.TempDir()
		c := Change{File: filepath.Join(dir, "f"), Name: "f", New: []byte(test[1])}
		if test[0] != "" {
			c.Old = []byte(test[0])
			writeFile(t, c.File, test[0])
		}
		text, err := c.Diff()
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "patch"), text)
		if _, err := exec.LookPath("git"); err != nil {
			t.Skip("git is not here")
		}
		cmd := exec.CommandContext(t.Context(), "git", "apply", "patch")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s in\n%s", name, err, out, text)
		} else if got, err := os.ReadFile(c.File); err != nil || string(got) != test[1] {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test[1])
		}
	}
}
