// Package adopt reads an operator's source, reports what has to change for it to run with Rota, and makes
// the easy changes in Go files. `rota adopt` prints what it finds.
//
// It reads the SSA form and the call graph of all of the operator's packages. It runs nothing and asks no cluster. What
// it cannot read, it lists; a controller about which it is not sure becomes a duty.
// docs/migrate.md lists what it does not see.
package adopt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Options say what to read.
type Options struct {
	// Dir is the operator's folder: that of its go.mod, or one below. All packages below Dir are read.
	Dir string
	// Name is the rota's name, as in rota.Options. Default: the last part of the module's path.
	Name string
	// Progress, if not nil, hears what Run is about to do, since a large module takes a while.
	Progress func(string)
}

// Run reads the operator in Dir. An error means that nothing can be said: the folder cannot be read, or it has no Go
// module or no operator, which is a FolderError. Packages that do not compile are in the report instead.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.Progress("type-checking the module, and the declarations of what it imports; tests are left out")
	m, err := load(ctx, o.Dir, nil)
	if err != nil {
		return nil, err
	}
	name, err := rotaName(o.Name, m.path)
	if err != nil {
		return nil, err
	}
	if !usesKubernetes(m) {
		return nil, wrongFolder("module %s in %s uses neither controller-runtime nor client-go: it is no operator in Go, or "+
			"its operator is in a module of its own below: name that folder", m.path, m.dir)
	}
	r := &Report{Module: m.path, Dir: m.dir, Rota: name, module: m,
		Managers: []Manager{}, Controllers: []Controller{}, Findings: []Finding{}}
	o.Progress(fmt.Sprintf("following the calls of %d packages", len(m.packages)))
	if err := r.versions(ctx); err != nil {
		return nil, err
	}
	r.analyze()
	r.sum()
	return r, nil
}

func usesKubernetes(m *module) bool {
	for _, p := range m.packages {
		for path := range p.Imports {
			if path == runtimePath || strings.HasPrefix(path, runtimePath+"/") || strings.HasPrefix(path, clientGo+"/") {
				return true
			}
		}
	}
	return false
}

// analyze scans the packages that compile: all at once, since a reconciler, its builder and its manager are often in
// different ones.
func (r *Report) analyze() {
	var list []*sourcePackage
	for _, p := range r.module.packages {
		if p.IllTyped || len(p.Errors) > 0 {
			r.Broken = append(r.Broken, p.PkgPath+": "+firstError(p))
			continue
		}
		list = append(list, &sourcePackage{p.Types, p.TypesInfo, p.Syntax})
	}
	r.broken()
	if len(list) > 0 {
		r.take(newScan(r.module.fset, r.Dir, r.Rota, list))
	}
}

// broken reports packages that do not compile, of which nothing is read.
func (r *Report) broken() {
	if len(r.Broken) == 0 {
		return
	}
	slices.Sort(r.Broken)
	text, instead := fmt.Sprintf("%d of %d packages do not compile here, and were not read", len(r.Broken),
		len(r.module.packages)), ""
	for _, p := range r.module.packages {
		for path, imported := range p.Imports {
			if len(imported.Errors) == 0 {
				continue
			}
			switch {
			case lacksSum(imported.Errors[0]):
				text, instead = text+": go.sum lacks what go.mod requires", "`"+r.module.tidy()+"`, and run this again"
			case path == runtimePath || strings.HasPrefix(path, rotaPath):
				text, instead = text+": there is no "+path,
					fmt.Sprintf("`go get %s && %s`, and run this again", path, r.module.tidy())
			}
		}
	}
	if f := r.found(Must, "NotCompiled", "", "%s", text); instead != "" {
		f.Instead = instead
	}
}

// firstError returns a package's first error that names a place, or that of what it imports.
func firstError(p *packages.Package) string {
	for _, e := range p.Errors {
		if !strings.HasPrefix(e.Msg, "# ") {
			line, _, _ := strings.Cut(e.Msg, "\n")
			return line
		}
	}
	return "a package that it imports does not compile"
}

// take adds what a scan has found.
func (r *Report) take(s *scan) {
	place := func(n *note) (string, int) {
		p := s.fset.PositionFor(n.pos, false)
		if !strings.HasPrefix(p.Filename, r.module.root) { // a file that is made for cgo
			p = s.fset.Position(n.pos)
		}
		return r.module.rel(p.Filename), p.Line
	}
	for _, n := range s.found {
		n.File, n.Line = place(n)
		r.Findings = append(r.Findings, n.Finding)
		if n.Written {
			r.notes = append(r.notes, n)
		}
	}
	for _, m := range s.managers {
		file, line := place(m.note)
		r.Managers = append(r.Managers, Manager{file, line, m.election, m.id, m.adopted})
	}
	for _, c := range s.controllers {
		file, line := place(c.note)
		r.Controllers = append(r.Controllers, c.report(file, line))
	}
	program := slices.ContainsFunc(r.module.packages, func(p *packages.Package) bool { return p.Name == "main" })
	if len(s.managers) == 0 {
		level := Look
		if program && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == "NotSeen" }) {
			level = Must
		}
		r.found(level, "NotSeen", "", "no place makes a manager")
	}
	if len(s.controllers) == 0 {
		r.found(Look, "NotSeen", "", "no place builds a controller")
	}
}

// found adds a finding that is not at a node of the source.
func (r *Report) found(level Level, code, file, format string, args ...any) *Finding {
	f := newFinding(level, code, format, args...)
	f.File = file
	r.Findings = append(r.Findings, f)
	return &r.Findings[len(r.Findings)-1]
}

// sum sorts the findings and counts.
func (r *Report) sum() {
	rank := map[Level]int{Must: 0, Look: 1, Fine: 2}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(rank[a.Level], rank[b.Level]),
			cmp.Compare(a.Text, b.Text))
	})
	r.Must, r.Look, r.Fine = 0, 0, 0
	for _, f := range r.Findings {
		switch f.Level {
		case Must:
			r.Must++
		case Look:
			r.Look++
		case Fine:
			r.Fine++
		}
	}
}
