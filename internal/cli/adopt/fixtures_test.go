package adopt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/txtar"

	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

// goldenName is the file of an archive that has what `rota adopt --write` changes in the others.
const goldenName = "written"

// fixtures unpacks the operators of testdata into a module that requires what this one does. It returns the module's
// folder, and the archives by the names of their folders.
func fixtures(t *testing.T) (dir string, archives map[string]*txtar.Archive) {
	t.Helper()
	const root = "../../.."
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	mod, err := modfile.Parse("go.mod", text, nil)
	require.NoError(t, err)
	abs, err := filepath.Abs(root)
	if err == nil {
		err = mod.AddModuleStmt("example.com/fixtures")
	}
	if err == nil {
		err = mod.AddRequire(rotaPath, "v0.0.0")
	}
	if err == nil {
		err = mod.AddReplace(rotaPath, "", abs, "")
	}
	if err == nil {
		text, err = mod.Format()
	}
	require.NoError(t, err)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	dir, archives = t.TempDir(), map[string]*txtar.Archive{}
	writeFile(t, filepath.Join(dir, "go.mod"), string(text))
	writeFile(t, filepath.Join(dir, "go.sum"), string(sum))
	names, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		require.NoError(t, err)
		folder := strings.TrimSuffix(filepath.Base(name), ".txtar")
		archives[folder] = a
		for _, f := range a.Files {
			writeFile(t, filepath.Join(dir, folder, f.Name), string(f.Data))
		}
	}
	return dir, archives
}

// analyzer reports the findings in a package.
var analyzer = &analysis.Analyzer{Name: "adopt", Doc: "what an operator has to change", Run: func(pass *analysis.Pass) (any, error) {
	dir := filepath.Dir(pass.Fset.PositionFor(pass.Files[0].Pos(), false).Filename)
	s := newScan(pass.Fset, dir, filepath.Base(dir), []*sourcePackage{{pass.Pkg, pass.TypesInfo, pass.Files}})
	for _, n := range s.found {
		code := n.Code + map[bool]string{true: "+"}[n.Written]
		if n.Known == "" {
			pass.Report(analysis.Diagnostic{Pos: n.pos, Message: code + ": " + n.Text})
		}
	}
	return nil, nil
}}

// TestAnalyzer: each line of the operators has the findings that its comment names, and no others. A + is one that
// --write settles.
func TestAnalyzer(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks controller-runtime and client-go from source")
	}
	dir, archives := fixtures(t)
	var paths []string
	for folder, a := range archives {
		if strings.Contains(string(txtar.Format(a)), "// want `") {
			paths = append(paths, "./"+folder)
		}
	}
	analysistest.Run(t, dir, analyzer, paths...)
}

// TestWritten: what is written, and why the rest is left, is as the archives say. It compiles with the real packages.
func TestWritten(t *testing.T) {
	dir, archives := fixtures(t)
	var all []Change
	for folder, a := range archives {
		written := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == goldenName })
		if written < 0 {
			continue
		}
		r, err := Run(t.Context(), Options{Dir: filepath.Join(dir, folder), Name: folder})
		if err != nil {
			t.Fatal(folder, err)
		}
		changes, err := r.Changes()
		if err != nil {
			t.Fatal(folder, err)
		}
		all = append(all, changes...)
		a.Files[written].Data = []byte(transcript(t, r, changes))
		golden.File(t, filepath.Join("testdata", folder+".txtar"), string(txtar.Format(a)))
	}
	require.NoError(t, (&Report{Dir: dir}).Check(t.Context(), all))
}

// transcript is what is written, and what is left.
func transcript(t *testing.T, r *Report, changes []Change) string {
	t.Helper()
	var text strings.Builder
	for _, c := range r.Controllers {
		fmt.Fprintf(&text, "%s: %s %s\n", c.Name, c.Becomes, c.Reason)
	}
	for _, f := range r.Findings {
		if f.Kept != "" || f.Known != "" || f.Code == "Ignore" {
			fmt.Fprintf(&text, "%d: %s: %s: %s%s\n", f.Line, f.Code, f.Text, f.Kept, f.Known)
		}
		if f.Code == "Manager" || f.Code == "LeaderElection" {
			fmt.Fprintf(&text, "%d: %s (%s): write %s\n", f.Line, f.Code, f.Level, f.Instead)
		}
	}
	for _, c := range changes {
		patch, err := c.Diff()
		require.NoError(t, err)
		text.WriteString(patch)
	}
	return text.String()
}
