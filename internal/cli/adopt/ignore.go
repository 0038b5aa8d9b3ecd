package adopt

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ignoring is the comment that says that a finding is known: its code, and why it is left.
var ignoring = regexp.MustCompile(`(?:^|\s)(?://|#)\s*rota:ignore\b[ \t]*(\S*)[ \t]*(.*?)\s*$`)

// ignored is such a comment.
type ignored struct {
	code, reason string
	// line is what it is about: its own line, or the next one that is no comment.
	line int
	// at is where the comment is.
	at   place
	used bool
}

// findIgnores reads those comments in source files and in go.mod. Manifests are read for them with their objects.
func (s *source) findIgnores() {
	for file := range s.module.inFile {
		var lines []string
		for _, group := range file.Comments {
			for _, c := range group.List {
				if !ignoring.MatchString(c.Text) {
					continue
				}
				if lines == nil {
					text, err := os.ReadFile(s.module.name(file))
					if err != nil {
						return // it was read a moment ago
					}
					lines = strings.Split(string(text), "\n")
				}
				if at := s.module.fset.PositionFor(c.Pos(), false).Line; at <= len(lines) {
					s.ignore(s.module.rel(s.module.name(file)), lines, at-1)
				}
			}
		}
	}
	name := filepath.Join(s.module.Root, "go.mod")
	if text, err := os.ReadFile(name); err == nil {
		s.ignoresIn(s.module.rel(name), text)
	}
}

// ignoresIn reads the comments of a file in which they are nothing else.
func (s *source) ignoresIn(rel string, text []byte) {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if ignoring.MatchString(line) {
			s.ignore(rel, lines, i)
		}
	}
}

// ignore notes the comment in a line of a file.
func (s *source) ignore(file string, lines []string, i int) {
	m := ignoring.FindStringSubmatchIndex(lines[i])
	if m == nil {
		return
	}
	about := i
	if strings.TrimSpace(lines[i][:m[0]]) == "" {
		about++
		for about < len(lines) && isComment(lines[about]) {
			about++
		}
	}
	g := &ignored{code: lines[i][m[2]:m[3]], reason: lines[i][m[4]:m[5]], at: place{file, i + 1}, line: about + 1}
	switch _, known := codes[g.code]; {
	case !known:
		s.found(Look, codeIgnore, g.at, "rota:ignore names %q, which is the code of no finding", g.code)
	case g.reason == "":
		s.found(Look, codeIgnore, g.at, "rota:ignore %s gives no reason, so it has no effect", g.code)
	default:
		s.ignores = append(s.ignores, g)
	}
}

func isComment(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "//") || strings.HasPrefix(line, "#")
}

// known makes a finding one that only -o wide shows, if a comment says that it is known.
func (s *source) known(f *Finding) {
	for _, g := range s.ignores {
		if g.at.File == f.File && g.line == f.Line && g.code == f.Code {
			g.used = true
			f.Level, f.Known = Fine, g.reason
		}
	}
}

// write makes the edit of a finding, unless that is known and left.
func (f *Finding) write(edit func() bool) {
	if f.Known == "" {
		f.Written = edit()
	}
}

// isKnown returns why a place is left as it is, by a comment; empty: there is none.
func (s *source) isKnown(at place, codes ...string) (reason string) {
	for _, g := range s.ignores {
		for _, code := range codes {
			if g.at.File == at.File && g.line == at.Line && g.code == code {
				return g.reason
			}
		}
	}
	return ""
}

// unused reports comments that are about nothing.
func (s *source) unused() {
	for _, g := range s.ignores {
		if !g.used {
			s.found(Look, codeIgnore, g.at, "rota:ignore %s is about line %d, which has no such finding", g.code, g.line)
		}
	}
}
