package mutant

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// edit replaces text that occurs once in a file.
type edit struct{ before, after string }

// parse reads a patch: a line about the mutant, then a unified diff, as "git diff -U1" prints it. It uses only the text
// of the hunks. Line numbers may be missing, since code moves.
func parse(text string) (Mutant, error) {
	m := Mutant{edits: map[string][]edit{}}
	about, diff, _ := strings.Cut(text, "\n")
	if m.About = about; about == "" || strings.HasPrefix(about, "---") {
		return m, errors.New("the first line must say what goes wrong")
	}
	file, inHunk := "", false
	for line := range strings.Lines(diff) {
		last := len(m.edits[file]) - 1
		switch kind, rest := line[:1], line[1:]; {
		case strings.HasPrefix(line, "--- "):
			inHunk = false
		case strings.HasPrefix(line, "+++ "):
			file = strings.TrimPrefix(strings.TrimSpace(line[4:]), "b/")
			if m.Package == "" {
				m.Package = packageOf(file)
			}
			inHunk = false
		case kind == "@" && file != "":
			m.edits[file], inHunk = append(m.edits[file], edit{}), true
		case !inHunk: // the lines that git writes above a diff
		case kind == " " || kind == "\n": // editors cut off trailing blanks
			rest = strings.TrimPrefix(line, " ")
			m.edits[file][last].before += rest
			m.edits[file][last].after += rest
		case kind == "-":
			m.edits[file][last].before += rest
		case kind == "+":
			m.edits[file][last].after += rest
		default:
			return m, fmt.Errorf("%q is no line of a unified diff", line)
		}
	}
	if len(m.edits) == 0 {
		return m, errors.New("there is no diff")
	}
	for file, edits := range m.edits {
		for _, e := range edits {
			if e.before == "" || e.before == e.after {
				return m, fmt.Errorf("a hunk for %s changes nothing, or is without the text to look for", file)
			}
		}
	}
	return m, nil
}

func packageOf(file string) string {
	if dir := path.Dir(file); dir != "." {
		return dir
	}
	return "rota"
}

// apply returns a file with the edits applied.
func apply(text string, edits []edit) (string, error) {
	for _, e := range edits {
		if n := strings.Count(text, e.before); n != 1 {
			return "", fmt.Errorf("this occurs %d times, not once:\n%s", n, e.before)
		}
		text = strings.Replace(text, e.before, e.after, 1)
	}
	return text, nil
}

var rule = regexp.MustCompile(`^R(\d+): `)

// compare sorts mutants.
func compare(a, b Mutant) int {
	number := func(m Mutant) int {
		if r := rule.FindStringSubmatch(m.About); r != nil {
			n, _ := strconv.Atoi(r[1])
			return n
		}
		return 0
	}
	if a.Clause != b.Clause {
		return slices.Index([]bool{false, true}, a.Clause) - slices.Index([]bool{false, true}, b.Clause)
	}
	if a.Clause {
		return cmp.Or(number(a)-number(b), strings.Compare(a.Name, b.Name))
	}
	return cmp.Or(strings.Compare(a.Package, b.Package), strings.Compare(a.Name, b.Name))
}
