package adopt

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// manager is a call that makes a manager.
type manager struct {
	*call
	info *types.Info
	// config and options are its arguments; lit is the literal of its options, where those are surely that. Else unread
	// says why they could not be read.
	config, options ast.Expr
	lit             *ast.CompositeLit
	unread          string
	adopted         bool
}

// election is the leader election of the stock operator.
type election struct {
	id string
	on bool
	// graceful is GracefulShutdownTimeout in seconds, 0 if it cannot be read.
	graceful float64
}

const (
	on, off, byFlag, unknown = "on", "off", "flag", "unknown"
)

// findManagers looks for calls that make managers.
func (s *source) findManagers() {
	for _, c := range s.calls {
		if c.test {
			continue
		}
		m := &manager{call: c, info: c.in.TypesInfo}
		switch {
		case (c.is(runtimePath, "NewManager") || c.is(runtimePath+"/pkg/manager", "New")) && len(c.Args) == 2:
			m.config, m.options = c.Args[0], c.Args[1]
		case c.is(ctrlrtPath, "NewManager") && len(c.Args) == 3:
			m.adopted, m.config, m.options = true, c.Args[0], c.Args[2]
		default:
			continue
		}
		m.lit, m.unread = s.literalOf(m.in.TypesInfo, m.options)
		s.managers = append(s.managers, m)
		s.manager(m)
	}
	if len(s.managers) > 1 {
		for _, m := range s.managers {
			s.found(Look, codeManagers, s.module.at(m.CallExpr), "one of %d places that make a manager", len(s.managers))
		}
	}
}

// manager says what is to be said of one.
func (s *source) manager(m *manager) {
	at := s.module.at(m.CallExpr)
	made := Manager{File: at.File, Line: at.Line, Adopted: m.adopted, LeaderElection: unknown}
	if m.adopted {
		s.found(Fine, codeAdopted, at, "the manager is made with ctrlrt.NewManager")
	} else {
		f := s.found(Must, codeManager, at, "this makes a stock manager")
		f.Instead = fmt.Sprintf("r, err := rota.New(cfg, rota.Options{Name: %q}), and "+
			"ctrlrt.NewManager(cfg, r, options)", s.name)
	}
	if m.lit == nil {
		s.found(Look, codeOption, at, "its options were not read: %s", m.unread).Instead =
			"look there for LeaderElection, Cache.NewInformer, NewCache and HealthProbeBindAddress"
	} else {
		made.LeaderElection, made.LeaderElectionID = s.electionOf(m)
		s.options(m)
	}
	s.report.Managers = append(s.report.Managers, made)
}

// electionOf reads the options of leader election.
func (s *source) electionOf(m *manager) (state, id string) {
	if kv := field(m.lit, "LeaderElectionID"); kv != nil {
		id = text(m.info, kv.Value)
	}
	if at := s.setLater(m, "LeaderElection", "LeaderElectionID", "LeaderElectionNamespace"); at.Line > 0 {
		s.election.on = true
		s.found(Must, codeElection, at, "an option of leader election is set behind the other options")
		return unknown, id
	}
	kv := field(m.lit, "LeaderElection")
	if kv == nil {
		if !m.adopted {
			s.found(Look, codeNoElection, s.module.at(m.CallExpr), "it has no leader election")
		}
		return off, id
	}
	state = byFlag
	if value, known := truth(m.info, kv.Value); known && value {
		state = on
	} else if known {
		return off, id
	}
	s.election.on = true
	s.election.id = id
	at := s.module.at(kv)
	text := "leader election is on"
	if state == byFlag {
		text = "leader election is decided when the program runs, by " + types.ExprString(kv.Value)
	}
	if id != "" {
		text += fmt.Sprintf("; its Lease is %s", id)
	}
	level := Must
	if m.adopted {
		level = Look // unsharded controllers may have it
	}
	s.found(level, codeElection, at, "%s", text)
	return state, id
}

// setLater returns where the variable that holds the options gets one of these fields; no line: nowhere in that
// function.
func (s *source) setLater(m *manager, names ...string) (at place) {
	id, fn := optionVariable(m.options), s.module.enclosing(m.CallExpr)
	if id == nil || fn == nil {
		return place{}
	}
	obj := m.info.ObjectOf(id)
	ast.Inspect(fn, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for _, l := range assign.Lhs {
			sel, ok := l.(*ast.SelectorExpr)
			if !ok || !slices.Contains(names, sel.Sel.Name) {
				continue
			}
			if x, ok := ast.Unparen(sel.X).(*ast.Ident); ok && m.info.ObjectOf(x) == obj {
				at = s.module.at(sel)
			}
		}
		return true
	})
	return at
}

// options looks at the other options.
func (s *source) options(m *manager) {
	at := func(kv *ast.KeyValueExpr) place { return s.module.at(kv) }
	if kv := field(m.lit, "HealthProbeBindAddress"); kv == nil {
		s.found(Look, codeProbes, s.module.at(m.CallExpr), "HealthProbeBindAddress is not set where the options are made")
	}
	if kv := field(m.lit, "NewCache"); kv != nil && !isNil(m.info, kv.Value) {
		f := s.found(Look, codeOption, at(kv), "NewCache is set")
		f.Why = "it is called once for each of the manager's caches, and answers in place of a " +
			"cache do not know what it changes"
		f.Instead = "set namespaces, selectors and transforms in Options.Cache, if that is enough"
	}
	if kv := field(m.lit, "GracefulShutdownTimeout"); kv != nil {
		s.election.graceful = -1
	}
	if kv := field(m.lit, "Cache"); kv != nil {
		lit := literal(kv.Value)
		if inner := field(lit, "NewInformer"); inner != nil {
			f := s.found(Must, codeOption, at(inner), "Cache.NewInformer is set")
			f.Why, f.Instead = "it is where sharded informers come from, so ctrlrt.NewManager refuses it", "leave it out"
		}
		f := s.found(Fine, codeOption, at(kv), "the cache has options")
		f.Why = "namespaces, selectors and transforms hold for the share, too; with namespaces, Rota's Role stays in its own"
	}
	if kv := field(m.lit, "Client"); kv != nil {
		ast.Inspect(kv, func(n ast.Node) bool {
			if inner, ok := n.(*ast.KeyValueExpr); ok {
				if id, ok := inner.Key.(*ast.Ident); ok && id.Name == "EnableReadYourWritesConsistency" {
					f := s.found(Fine, codeOption, at(inner), "EnableReadYourWritesConsistency is set")
					f.Why = "reads wait for what a replica wrote to its own objects; those of others are read from the API server"
				}
			}
			return true
		})
	}
	if kv := field(m.lit, "Controller"); kv != nil {
		if inner := field(literal(kv.Value), "NeedLeaderElection"); inner != nil {
			if value, known := truth(m.info, inner.Value); !known || value {
				s.found(Must, codeOption, at(inner), "NeedLeaderElection is set for all controllers").Why =
					"a sharded controller runs on every replica, so it is refused"
			}
		}
	}
}

// usesKubernetes reports whether the module is an operator at all, or something like it.
func (s *source) usesKubernetes() bool {
	for _, p := range s.module.packages {
		for path := range p.Imports {
			if path == runtimePath || strings.HasPrefix(path, runtimePath+"/") || strings.HasPrefix(path, clientGo+"/") {
				return true
			}
		}
	}
	return false
}

// broken lists the packages that did not compile. If controller-runtime itself is missing, next to nothing is seen.
func (s *source) broken() {
	blind, unsummed := "", false
	for _, p := range s.module.packages {
		if len(p.Errors) == 0 {
			continue
		}
		for path, imported := range p.Imports {
			unsummed = unsummed || slices.ContainsFunc(imported.Errors, lacksSum)
			if (path == runtimePath || strings.HasPrefix(path, rotaPath)) && len(imported.Errors) > 0 {
				blind = path
			}
		}
		first := p.Errors[0].Msg
		for _, e := range p.Errors {
			if !strings.HasPrefix(e.Msg, "# ") {
				first = e.Msg
				break
			}
		}
		first, _, _ = strings.Cut(first, "\n")
		s.report.Broken = append(s.report.Broken, fmt.Sprintf("%s: %s", p.PkgPath, first))
	}
	slices.Sort(s.report.Broken)
	n := len(s.report.Broken)
	switch {
	case n == 0:
	case unsummed:
		s.found(Must, codeBroken, place{}, "%d of %d packages do not compile here: go.sum lacks what go.mod requires", n,
			len(s.module.packages)).Instead = fmt.Sprintf("`%s`, and run this again", s.module.tidy())
	case blind == "":
		s.found(Look, codeBroken, place{}, "%d of %d packages do not compile here", n, len(s.module.packages))
	default:
		f := s.found(Must, codeBroken, place{}, "%d of %d packages do not compile here: there is no %s", n,
			len(s.module.packages), blind)
		f.Instead = fmt.Sprintf("`go get %s && %s`, and run this again", blind, s.module.tidy())
	}
}
