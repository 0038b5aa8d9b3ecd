package adopt

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"go.yaml.in/yaml/v3"
)

// edits are changes to files, by absolute path.
type edits struct {
	files map[string]*fileEdit
}

// fileEdit is what is changed in one file.
type fileEdit struct {
	// created: the file is new, and text is all of it.
	created bool
	old     []byte
	changes []change
}

var lf, crlf = []byte("\n"), []byte("\r\n")

// endsInCRLF reports whether all lines of the file end as Windows has them.
func (f *fileEdit) endsInCRLF() bool {
	n := bytes.Count(f.old, crlf)
	return n > 0 && n == bytes.Count(f.old, lf)
}

// change replaces the bytes from start to end.
type change struct {
	start, end int
	text       string
}

// file returns the edit of a file, which must be readable.
func (e *edits) file(name string) (*fileEdit, error) {
	if f, ok := e.files[name]; ok {
		return f, nil
	}
	old, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f := &fileEdit{old: old}
	e.put(name, f)
	return f, nil
}

func (e *edits) put(name string, f *fileEdit) {
	if e.files == nil {
		e.files = map[string]*fileEdit{}
	}
	e.files[name] = f
}

func (f *fileEdit) add(start, end int, text string) {
	f.changes = append(f.changes, change{start, end, text})
}

// Change is the new text of a file.
type Change struct {
	// File is the absolute path, Name that in the report. Old is nil if the file is new.
	File, Name string
	Old, New   []byte
}

// Changes returns what --write writes, by name. An error is a defect of this package: an edit that does not fit.
func (r *Report) Changes() ([]Change, error) {
	var out []Change
	for name, f := range r.source.edits.files {
		if len(f.changes) == 0 {
			continue
		}
		text, err := f.result(name)
		if err != nil {
			return nil, fmt.Errorf("%s: the change cannot be made, nothing was written: %w", name, err)
		}
		rel, err := filepath.Rel(r.Dir, name)
		if err != nil {
			rel = name
		}
		c := Change{File: name, Name: filepath.ToSlash(rel), Old: f.old, New: text}
		if f.created {
			c.Old = nil
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// result applies the changes. Lines end as those of the file did.
func (f *fileEdit) result(name string) ([]byte, error) {
	text, err := f.applied(name)
	if err == nil && f.endsInCRLF() {
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, crlf, lf), lf, crlf)
	}
	return text, err
}

func (f *fileEdit) applied(name string) ([]byte, error) {
	changes := slices.Clone(f.changes)
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.start, b.start) })
	var b bytes.Buffer
	at := 0
	for _, c := range changes {
		if c.start < at || c.end < c.start || c.end > len(f.old) {
			return nil, fmt.Errorf("two edits are in one place, near byte %d", c.start)
		}
		b.Write(f.old[at:c.start])
		b.WriteString(c.text)
		at = c.end
	}
	b.Write(f.old[at:])
	if strings.HasSuffix(name, ".go") {
		return format.Source(b.Bytes())
	}
	// What was YAML is still.
	for dec := yaml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		var node yaml.Node
		if err := dec.Decode(&node); err != nil {
			if err.Error() == "EOF" {
				break
			}
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// Diff prints a change as patch does.
func (c Change) Diff() (string, error) {
	from, old := "a/"+c.Name, string(c.Old)
	if c.Old == nil {
		from = "/dev/null"
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: lines(old), B: lines(string(c.New)), FromFile: from, ToFile: "b/" + c.Name, Context: 3,
	})
}

// lines splits a text. A last line without its end is marked as patch marks it.
func lines(text string) []string {
	out := slices.Collect(strings.Lines(text))
	if n := len(out); n > 0 && !strings.HasSuffix(text, "\n") {
		out[n-1] += "\n\\ No newline at end of file\n"
	}
	return out
}
