// Package adopt reads an operator's source and manifests, says what it would have to change to run with Rota, and makes
// the changes that are surely right. `rota adopt` prints what it finds.
//
// It goes by types, not by text: what is called is known by its import path. It does not run the operator and asks no
// cluster, so it knows no call that goes through reflection, and of a call through an interface only that any
// implementation in the module may be meant. docs/adopt.md lists what it does not see.
package adopt

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"slices"
)

// Options say what to read.
type Options struct {
	// Dir is the operator's folder: that of its go.mod, or one below. All packages below Dir are read.
	Dir string
	// Name is the rota's name, as in rota.Options. Default: the last part of the module's path.
	Name string
}

// Run reads the operator in Dir. An error means that nothing can be said: the folder cannot be read, or it has no Go
// module or no operator, which is a FolderError. Packages that do not compile are in the report instead.
func Run(ctx context.Context, o Options) (*Report, error) {
	mod, err := load(ctx, o.Dir, true, nil)
	if err != nil {
		return nil, err
	}
	if mod.selected, err = selectedIn(ctx, mod.Dir); err != nil {
		return nil, err
	}
	name, err := rotaName(o.Name, mod.Path)
	if err != nil {
		return nil, err
	}
	return read(mod, name)
}

// read says what is to be said of a module.
func read(mod *module, name string) (*Report, error) {
	s := &source{module: mod, name: name, calls: callsOf(mod), report: &Report{
		Module: mod.Path, Dir: mod.Dir, Rota: name, Managers: []Manager{}, Controllers: []Controller{}, Findings: []Finding{},
	}}
	if !s.usesKubernetes() {
		return nil, wrongFolder("module %s in %s uses neither controller-runtime nor client-go: it is no operator in Go, or "+
			"its operator is in a module of its own below: name that folder", mod.Path, mod.Dir)
	}
	s.findIgnores()
	s.broken()
	s.versions()
	s.reach = newReach(mod)
	s.values = s.valuesOf()
	s.reach.hold(s.values)
	s.findManagers()
	s.findControllers()
	s.findHidden()
	// First what speaks against sharding a controller, then what depends on which kinds are sharded.
	s.judge()
	s.findReads()
	s.findState()
	s.tellReads()
	s.tellSources()
	s.findRunnables()
	s.findClients()
	s.findLate()
	s.findTests()
	s.decide()
	if err := s.manifests(); err != nil {
		return nil, err
	}
	s.edit()
	s.unused()
	s.sum()
	return s.report, nil
}

// source is an operator while it is read.
type source struct {
	module *module
	name   string
	calls  []*call
	report *Report

	managers    []*manager
	controllers []*controller
	// reach says which functions each function may call, and values what variables get.
	reach  *reach
	values *values
	// lists are the lists of objects.
	lists []listing
	// edits are what --write does, by file.
	edits edits
	// units are the edits of Go files, dropped those that are left since the source would not compile with them, and why.
	units   []unit
	dropped map[*ast.CallExpr]string
	// namespaced: the rota's namespace is written.
	namespaced bool
	// ignores are the comments that say that a finding is known.
	ignores []*ignored
	// election is what the stock managers say of their leader election, as far as it can be read.
	election election
}

// found adds a finding.
func (s *source) found(level Level, code string, at place, format string, args ...any) *Finding {
	s.report.Findings = append(s.report.Findings, Finding{
		Level: level, Code: code, File: at.File, Line: at.Line, Text: fmt.Sprintf(format, args...),
		Why: codes[code].why, Instead: codes[code].instead, Link: Page + "#" + codes[code].anchor,
	})
	f := &s.report.Findings[len(s.report.Findings)-1]
	s.known(f)
	return f
}

// sum sorts the findings and counts.
func (s *source) sum() {
	r := s.report
	rank := map[Level]int{Must: 0, Look: 1, Fine: 2}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(rank[a.Level], rank[b.Level]),
			cmp.Compare(a.Text, b.Text))
	})
	r.Findings = slices.CompactFunc(r.Findings, func(a, b Finding) bool {
		return a.File == b.File && a.Line == b.Line && a.Code == b.Code && a.Text == b.Text
	})
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
	r.source = s
}
