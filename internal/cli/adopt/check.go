package adopt

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Left counts the findings that must be changed and that --write leaves.
func (r *Report) Left() int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == Must && !f.Written {
			n++
		}
	}
	return n
}

// withoutRota is in the errors of a module that does not require Rota, or not with all that it needs.
var withoutRota = regexp.MustCompile(`(provides package|providing package|could not import) ` +
	regexp.QuoteMeta(rotaPath))

// Check type-checks the module as it would be with the changes. checked is false if the module does not require Rota
// yet, so that nothing can be said. An error says what would not compile that does now.
func (r *Report) Check(ctx context.Context, changes []Change) (checked bool, err error) {
	overlay := map[string][]byte{}
	for _, c := range changes {
		if strings.HasSuffix(c.File, ".go") {
			overlay[c.File] = c.New
		}
	}
	if len(overlay) == 0 {
		return true, nil
	}
	m, err := load(ctx, r.Dir, false, overlay)
	if err != nil {
		return false, err
	}
	var broken []error
	for _, p := range m.packages {
		for _, e := range p.Errors {
			if withoutRota.MatchString(e.Msg) {
				return false, nil
			}
			known := slices.ContainsFunc(r.Broken, func(text string) bool { return strings.HasPrefix(text, p.PkgPath+": ") })
			if !known && e.Kind != packages.ListError && !strings.HasPrefix(e.Msg, "# ") {
				broken = append(broken, fmt.Errorf("%s: %s", e.Pos, e.Msg))
			}
		}
	}
	if len(broken) > 0 {
		return true, fmt.Errorf("the changed source would not compile: %w", errors.Join(broken...))
	}
	return true, nil
}
