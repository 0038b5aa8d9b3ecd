package adopt

import (
	"go/token"
	"os"
	"regexp"
	"strings"
)

// ignoring matches the comment that accepts a finding, with its code and the reason.
var ignoring = regexp.MustCompile(`^\s*(?://|#)\s*rota:ignore\b[ \t]*(\S*)[ \t]*(.*?)\s*$`)

// ignored is such a comment.
type ignored struct {
	code, reason string
	// file and line are the place that it applies to: its own line, or the next one that is not a comment.
	file string
	line int
	pos  token.Pos
	used bool
}

// findIgnores collects these comments.
func (s *scan) findIgnores(list []*sourcePackage) {
	for _, p := range list {
		for _, f := range p.files {
			var lines []string
			for _, group := range f.Comments {
				for _, c := range group.List {
					m := ignoring.FindStringSubmatch(c.Text)
					if m == nil {
						continue
					}
					at := s.fset.PositionFor(c.Pos(), false)
					if lines == nil {
						src, _ := os.ReadFile(at.Filename) // it was parsed a moment ago
						lines = strings.Split(string(src), "\n")
					}
					g := &ignored{code: m[1], reason: m[2], file: at.Filename, line: at.Line, pos: c.Pos()}
					for isComment(lines, g.line) {
						g.line++
					}
					switch _, known := codes[g.code]; {
					case !known:
						s.find(Look, "Ignore", g.pos, "rota:ignore names %q, which is the code of no finding", g.code)
					case g.reason == "":
						s.find(Look, "Ignore", g.pos, "rota:ignore %s gives no reason, so it has no effect", g.code)
					default:
						s.ignores = append(s.ignores, g)
					}
				}
			}
		}
	}
}

func isComment(lines []string, line int) bool {
	return line <= len(lines) && strings.HasPrefix(strings.TrimSpace(lines[line-1]), "//")
}

// know makes a finding Fine if a comment accepts it.
func (s *scan) know(n *note) {
	at := s.fset.PositionFor(n.pos, false)
	for _, g := range s.ignores {
		if g.file == at.Filename && g.line == at.Line && g.code == n.Code {
			g.used = true
			n.Level, n.Known = Fine, g.reason
		}
	}
}

// unusedIgnores reports comments without a finding.
func (s *scan) unusedIgnores() {
	for _, g := range s.ignores {
		if !g.used {
			s.find(Look, "Ignore", g.pos, "rota:ignore %s is about line %d, which has no such finding", g.code, g.line)
		}
	}
}
