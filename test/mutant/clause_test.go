package mutant_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/mutant"
)

var (
	clauseLine = regexp.MustCompile(`(?m)^clause (\w+) prevents (.*)$`)
	mutantLine = regexp.MustCompile(`(?m)^mutant (\w+)$`)
	graveLine  = regexp.MustCompile(`(?m)^(\d+) .*\[(\w+)\]$`)
)

// Every clause of the protocol has a script that shows what it prevents, and no script names another.
func TestClausesHaveScripts(t *testing.T) {
	all, err := mutant.All()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, s := range scripts(t, "../../internal/protocol/member/testdata", clauseLine) {
		shown[s.match[1]] = true
	}
	for _, m := range all {
		if m.Clause && !shown[m.Name] {
			t.Errorf("clause %s: no script shows what it prevents", m.Name)
		}
		delete(shown, m.Name)
	}
	for name := range shown {
		t.Errorf("a script is about clause %s, which there is not", name)
	}
}

// A script of package member that is about a clause fails without that clause, in the way it says.
func TestScriptsFailWithoutTheirClause(t *testing.T) {
	build(t)
	for _, s := range scripts(t, "../../internal/protocol/member/testdata", clauseLine) {
		clause, prevents := s.match[1], s.match[2]
		rule, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(s.file), ".txt"), "_")
		t.Run(filepath.Base(s.file), func(t *testing.T) {
			t.Parallel()
			out, failed := run(t, clause, "member.test", "-test.run", "^Test"+rule+"/^"+name+"$")
			want := "script_test.go:[0-9]+: violated: " + prevents + ": "
			if prevents == "wait" {
				want = "script_test.go:[0-9]+: testdata/" + filepath.Base(s.file) + ":[0-9]+: "
			}
			if !failed || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("without clause %s it does not fail by %q:\n%s", clause, prevents, out)
			}
		})
	}
}

// Seeds in the graveyard fail with the mutants that they name.
func TestGraveyardWithMutants(t *testing.T) {
	build(t)
	text, err := os.ReadFile("../sim/testdata/graveyard.txt")
	if err != nil {
		t.Fatal(err)
	}
	seeds := graveLine.FindAllStringSubmatch(string(text), -1)
	if len(seeds) == 0 {
		t.Fatal("no seeds")
	}
	for _, line := range seeds {
		seed, mutant := line[1], line[2]
		t.Run(seed+"-"+mutant, func(t *testing.T) {
			t.Parallel()
			out, failed := run(t, mutant, "sim", "-first", seed, "-seeds", "1", "-all=false")
			if !failed || !strings.Contains(out, "seed "+seed+" after ") {
				t.Errorf("with mutant %s seed %s failed: %v\n%s", mutant, seed, failed, out)
			}
		})
	}
}

// The scripts of package explore lead to what was found once with their mutants.
func TestExploredScripts(t *testing.T) {
	build(t)
	for _, s := range scripts(t, "../explore/testdata", mutantLine) {
		t.Run(filepath.Base(s.file), func(t *testing.T) {
			t.Parallel()
			rule, _, _ := strings.Cut(strings.TrimPrefix(s.text, "# "), ":")
			finds(t, rule, s.match[1], "-replay", s.file)
		})
	}
}

// Without a clause that looks as if it could be left out, the exhaustive check finds something, and a script that leads
// there.
func TestExploreWithoutClauses(t *testing.T) {
	build(t)
	for _, c := range []struct{ clause, scope, rule string }{
		{"ShutOnceSent", "drain2", "opened though sent"},
		{"LeaseFirst", "crash", "expelled with lease"},
		{"FenceWait", "crash", "late write"},
		{"RestartWaits", "crash", "late write"},
		{"NewcomersWait", "recovery", "late write"},
		{"ShutWaits", "recovery", "late write"},
		{"LapseTold", "late", "settle"},
	} {
		t.Run(c.clause, func(t *testing.T) {
			t.Parallel()
			script := filepath.Join(t.TempDir(), "script.txt")
			finds(t, c.rule, c.clause, "-scopes", c.scope, "-states", "500000", "-save", script)
			finds(t, c.rule, c.clause, "-replay", script)
		})
	}
}

// finds runs the exhaustive check, which must find that a rule is broken.
func finds(t *testing.T, rule, mutant string, args ...string) {
	t.Helper()
	out, failed := run(t, mutant, "explore", args...)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); !failed || !strings.Contains(lines[len(lines)-1], rule+": ") {
		t.Errorf("explore %q with mutant %s does not find %q:\n%s", args, mutant, rule, out)
	}
}

type script struct {
	file, text string
	match      []string
}

// scripts returns the scripts in a directory that have a line of that kind.
func scripts(t *testing.T, dir string, line *regexp.Regexp) (found []script) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if match := line.FindStringSubmatch(string(text)); match != nil {
			found = append(found, script{file, string(text), match})
		}
	}
	if len(found) == 0 {
		t.Fatal("no scripts in " + dir)
	}
	return found
}
