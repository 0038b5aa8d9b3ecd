package adopt

import (
	_ "embed"
	"strings"
)

// docs is the address of the pages. Page is the page that lists the findings.
const (
	docs = "https://github.com/rota-dev/rota/blob/main/docs/"
	Page = docs + "migrate.md"
)

// explanation is why a finding matters, and what to write instead.
type explanation struct{ why, instead string }

//go:embed codes.txt
var codesText string

// codes explains each code. In codes.txt each has three lines: its name, why it matters, and what to write instead.
var codes = func() map[string]explanation {
	out := map[string]explanation{}
	for part := range strings.SplitSeq(strings.TrimSpace(codesText), "\n\n") {
		lines := strings.Split(part, "\n")
		out[lines[0]] = explanation{lines[1], strings.TrimPrefix(lines[2], "-")}
	}
	return out
}()
