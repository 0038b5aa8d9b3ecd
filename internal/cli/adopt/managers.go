package adopt

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"
	"slices"

	"golang.org/x/tools/go/ssa"
)

const (
	on, off, byFlag, unknown = "on", "off", "flag", "unknown"
)

// manager is a call that makes a manager.
type manager struct {
	call    *ssa.Call
	syntax  *ast.CallExpr
	info    *types.Info
	adopted bool
	// lit is the literal of its options, or nil if they are not in the call.
	lit *ast.CompositeLit
	// election is on, off, byFlag or unknown. id is the name of its Lease.
	election, id   string
	note, leaderAt *note
}

// infoOf returns the type information for a function's package.
func (s *scan) infoOf(f *ssa.Function) *types.Info {
	for f.Parent() != nil {
		f = f.Parent()
	}
	if f.Origin() != nil {
		f = f.Origin()
	}
	if f.Pkg != nil && s.own[f.Pkg.Pkg] != nil {
		return s.own[f.Pkg.Pkg].info
	}
	return &types.Info{}
}

func (s *scan) findManagers() {
	for i := range s.each() {
		call, ok := i.(*ssa.Call)
		if !ok || s.calls[call.Pos()] == nil {
			continue
		}
		m := &manager{call: call, syntax: s.calls[call.Pos()], info: s.infoOf(call.Parent()), election: unknown}
		switch name := calleeOf(&call.Call); {
		case name.is(runtimePath, "NewManager"), name.is(managerPath, "New"):
			m.note = s.find(Must, "Manager", m.syntax.Pos(), "this makes a stock manager")
			m.note.Instead = s.makeManager("")
		case name.is(ctrlrtPath, "NewManager"):
			m.adopted = true
			m.note = s.find(Fine, "Adopted", m.syntax.Pos(), "the manager is made with ctrlrt.NewManager")
		default:
			continue
		}
		s.managers = append(s.managers, m)
		if m.lit, ok = ast.Unparen(m.syntax.Args[len(m.syntax.Args)-1]).(*ast.CompositeLit); !ok {
			s.unreadElection(m)
			n := s.find(Look, "ManagerOption", m.syntax.Pos(), "its options were not read, since they are not in the call")
			n.Why = "ctrlrt.NewManager refuses some options of a stock manager, and needs others"
			n.Instead = "look there for LeaderElection, Cache.NewInformer, NewCache and HealthProbeBindAddress"
			continue
		}
		s.readElection(m)
		s.readOptions(m)
	}
	for _, m := range s.managers {
		if len(s.managers) > 1 {
			s.find(Look, "SeveralManagers", m.syntax.Pos(), "one of %d places that make a manager", len(s.managers))
		}
	}
}

// unreadElection reports a manager with unread options that may use leader election: without the Lease's name in
// rota.Options, a stock leader and the members would work at the same time.
func (s *scan) unreadElection(m *manager) {
	args := m.call.Call.Args
	election := s.constant(args[len(args)-1].Type(), "LeaderElectionID")
	switch {
	case !m.adopted:
		m.note.Instead = s.makeManager(election)
	case s.hasRotaOption(m, "LeaderElectionID", "NoStockReplicas"):
	case s.bindsFlags():
		s.find(Look, "LeaderElection", m.syntax.Pos(),
			"its options were not read, and a flag names the Lease of rota.Options").Instead =
			"start it with --rota-leader-election-id: the manager's LeaderElectionID"
	default:
		s.find(Must, "LeaderElection", m.syntax.Pos(),
			"its options were not read, and rota.Options has no LeaderElectionID").Instead = s.rotaOptions(election)
	}
}

// constant returns the expression of the only value that a struct's field gets anywhere in the program, or "the
// manager's" if it is not constant.
func (s *scan) constant(of types.Type, name string) string {
	value := ""
	for _, v := range s.storesOf(of, name) {
		c, ok := v.(*ssa.Const)
		if !ok || c.Value == nil || value != "" && value != c.Value.ExactString() {
			return "the manager's"
		}
		value = c.Value.ExactString()
	}
	return cmp.Or(value, "the manager's")
}

// bindsFlags reports whether flags set the rota's options.
func (s *scan) bindsFlags() bool {
	for i := range s.each() {
		if c, ok := i.(*ssa.Call); ok && calleeOf(&c.Call).method(rotaPath, "Options", "BindFlags") {
			return true
		}
	}
	return false
}

// hasRotaOption reports whether the rota of a ctrlrt manager sets one of these options. If the options are not in the
// call, it checks whether the program sets one anywhere.
func (s *scan) hasRotaOption(m *manager, names ...string) bool {
	return s.comesFrom(m.call.Call.Args[1], func(c *ssa.Call) bool {
		syntax := s.calls[c.Pos()]
		if !calleeOf(&c.Call).is(rotaPath, "New") || syntax == nil || len(syntax.Args) != 2 {
			return false
		}
		lit, read := ast.Unparen(syntax.Args[1]).(*ast.CompositeLit)
		return slices.ContainsFunc(names, func(name string) bool {
			return read && field(lit, name) != nil || !read && len(s.storesOf(c.Call.Args[1].Type(), name)) > 0
		})
	})
}

// makeManager returns the code that makes a ctrlrt manager. election is the expression of the Lease's name, or empty.
func (s *scan) makeManager(election string) string {
	return "r, err := rota.New(cfg, " + s.rotaOptions(election) + "), and ctrlrt.NewManager(cfg, r, options)"
}

func (s *scan) rotaOptions(election string) string {
	if election == "" {
		return fmt.Sprintf("rota.Options{Name: %q}", s.name)
	}
	return fmt.Sprintf("rota.Options{Name: %q, LeaderElectionID: %s}", s.name, election)
}

// readElection processes the options of leader election.
func (s *scan) readElection(m *manager) {
	if kv := field(m.lit, "LeaderElectionID"); kv != nil {
		if tv := m.info.Types[kv.Value]; tv.Value != nil {
			m.id = constant.StringVal(tv.Value)
		}
	}
	kv := field(m.lit, "LeaderElection")
	value, known := false, true
	if kv != nil {
		value, known = truth(m.info, kv.Value)
	}
	text := "leader election is on"
	switch {
	case !known:
		m.election = byFlag
		text = "leader election is decided when the program runs, by " + types.ExprString(kv.Value)
	case value:
		m.election = on
	default:
		m.election = off
		if !m.adopted && kv == nil {
			s.find(Look, "NoLeaderElection", m.syntax.Pos(), "it has no leader election")
		}
		return
	}
	if m.id != "" {
		text += "; its Lease is " + m.id
	}
	level := Must
	switch id := field(m.lit, "LeaderElectionID"); {
	case m.adopted && s.hasRotaOption(m, "NoStockReplicas"):
		level = Look // unsharded controllers may have it
	case m.adopted:
	case id != nil:
		m.note.Instead = s.makeManager(types.ExprString(id.Value))
	default:
		m.note.Instead = s.makeManager("the manager's")
	}
	m.leaderAt = s.find(level, "LeaderElection", kv.Pos(), "%s", text)
	if m.election == byFlag {
		m.leaderAt.Instead += ". The flag may stay, and has no effect then"
	}
}

// readOptions processes the other options.
func (s *scan) readOptions(m *manager) {
	add := func(level Level, kv *ast.KeyValueExpr, text, why, instead string) {
		f := s.find(level, "ManagerOption", kv.Pos(), "%s", text)
		f.Why, f.Instead = why, instead
	}
	if field(m.lit, "HealthProbeBindAddress") == nil {
		s.find(Look, "NoProbes", m.syntax.Pos(), "HealthProbeBindAddress is not set where the options are made")
	}
	if kv := field(m.lit, "NewCache"); kv != nil {
		add(Look, kv, "NewCache is set", "it is called once for each of the manager's caches, and answers in place of a "+
			"cache do not know what it changes", "set namespaces, selectors and transforms in Options.Cache, if that is enough")
	}
	if kv := field(m.lit, "Cache"); kv != nil {
		lit, _ := kv.Value.(*ast.CompositeLit)
		if inner := field(lit, "NewInformer"); inner != nil {
			add(Must, inner, "Cache.NewInformer is set",
				"it is where sharded informers come from, so ctrlrt.NewManager refuses it", "leave it out")
		}
	}
	if kv := field(m.lit, "Controller"); kv != nil {
		lit, _ := kv.Value.(*ast.CompositeLit)
		if inner := field(lit, "NeedLeaderElection"); inner != nil {
			if value, known := truth(m.info, inner.Value); !known || value {
				add(Must, inner, "NeedLeaderElection is set for all controllers",
					"a sharded controller runs on every replica, so it is refused", "leave it out")
			}
		}
	}
}

// field returns a literal's field, or nil.
func field(lit *ast.CompositeLit, name string) *ast.KeyValueExpr {
	if lit == nil {
		return nil
	}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == name {
				return kv
			}
		}
	}
	return nil
}

// pointerTo matches functions that return a pointer to their argument.
var pointerTo = regexp.MustCompile(`(?i)^(to|ptr|pointer|bool|new)$`)

// truth returns the value of a constant, or of a pointer to one made by a function such as ptr.To.
func truth(info *types.Info, e ast.Expr) (value, known bool) {
	if c, ok := ast.Unparen(e).(*ast.CallExpr); ok && len(c.Args) == 1 {
		fun := ast.Unparen(c.Fun)
		if index, ok := fun.(*ast.IndexExpr); ok {
			fun = index.X
		}
		if sel, ok := fun.(*ast.SelectorExpr); ok {
			fun = sel.Sel
		}
		if id, ok := fun.(*ast.Ident); ok && pointerTo.MatchString(id.Name) {
			e = c.Args[0]
		}
	}
	if tv := info.Types[e]; tv.Value != nil && tv.Value.Kind() == constant.Bool {
		return constant.BoolVal(tv.Value), true
	}
	return false, false
}

// managersOf returns the possible managers of a value. all is false if there may be others.
func (s *scan) managersOf(v ssa.Value) (list []*manager, all bool) {
	all = true
	for _, from := range s.makers(v) {
		i := slices.IndexFunc(s.managers, func(m *manager) bool { return m.call == from })
		if i >= 0 {
			list = append(list, s.managers[i])
		}
		all = all && (i >= 0 || isNil(from))
	}
	return list, all && len(list) > 0
}

// isWhole reports whether a value can only be a manager from mgr.Whole().
func (s *scan) isWhole(v ssa.Value) bool {
	return s.comesFrom(v, func(c *ssa.Call) bool { return calleeOf(&c.Call).method(ctrlrtPath, "Manager", "Whole") })
}

// comesFrom reports whether a value can only be the result of such a call.
func (s *scan) comesFrom(v ssa.Value, made func(*ssa.Call) bool) bool {
	for _, from := range s.makers(v) {
		if c, ok := from.(*ssa.Call); !ok || !made(c) {
			return false
		}
	}
	return true
}
