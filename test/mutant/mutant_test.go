package mutant

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Every patch applies to the product as it is, and what comes of it parses. That it compiles, and is found, is shown by
// TestAMutantIsCaught.
func TestPatchesApply(t *testing.T) {
	root, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		seen[m.Name] = true
		if number := rule.MatchString(m.About); number != m.Clause {
			t.Errorf("%s: %q: clauses, and no other mutants, begin with the number of their rule", m.Name, m.About)
		}
		if _, err := mutated([]Mutant{m}, root); err != nil { // each alone, to name all that are stale
			t.Error(err)
		}
	}
	files, err := mutated(all, root)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
			t.Error(err)
		}
	}
}

const product = `package p

import "fmt"

type t struct{ n int }

func (x *t) add(n int, more ...int) (sum int, err error) {
	sum = x.n + n
	return sum + len(more), nil
}

func show(s string, _ int) { fmt.Println(s) }

func same[A any](a A) A { return a }

const one = 1
`

// Two mutants of a function are in the file side by side, each made of the function as it is.
func TestCompose(t *testing.T) {
	got, err := compose("p/p.go", product, []Mutant{
		mutantOf(t, "A", "-\tsum = x.n + n", "+\tsum = x.n"),
		mutantOf(t, "B", " \tsum = x.n + n", "-\treturn sum + len(more), nil", "+\treturn sum, os.ErrExist", "@@", " import \"fmt\"", "+import \"os\""),
		mutantOf(t, "C", "-func same[A any](a A) A { return a }", "+func same[A any](a A) A { return *new(A) }"),
		{Name: "D"}, // of other files
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		"package p\n", `package p; import rotamutant "github.com/rota-dev/rota/test/mutant/active"; import "os"`+"\n",
		"err error) {\n", `err error) { if rotamutant.Is("A") { return x.add_A(n, more...) }; if rotamutant.Is("B") { return x.add_B(n, more...) };`+"\n",
		"A { return a }", `A { if rotamutant.Is("C") { return same_C[A](a) }; return a }`,
	).Replace(product) + `
func (x *t) add_A(n int, more ...int) (sum int, err error) {
	sum = x.n
	return sum + len(more), nil
}

func (x *t) add_B(n int, more ...int) (sum int, err error) {
	sum = x.n + n
	return sum, os.ErrExist
}

func same_C[A any](a A) A { return *new(A) }
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What does not apply is told, with the name of the mutant.
func TestComposeRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		lines      []string
	}{
		{"code that is gone", "occurs 0 times", []string{"-\tsum = n", "+\tsum = 0"}},
		{"code that is there twice", "occurs 4 times", []string{"-}", "+}}"}},
		{"an empty hunk", "changes nothing", []string{" const one = 1"}},
		{"a constant", "bodies of functions only", []string{"-const one = 1", "+const one = 2"}},
		{"a signature", "bodies of functions only", []string{"-func show(s string, _ int) { fmt.Println(s) }", "+func show(s string, _ uint) { fmt.Println(s) }"}},
		{"another function", "adds or removes", []string{" const one = 1", "+func more() {}"}},
		{"a comment", "changes no function", []string{"-const one = 1", "+const one = 1 // uno"}},
		{"no Go", "expected", []string{"-const one = 1", "+const one ="}},
		{"a parameter without a name", "must name", []string{"-func show(s string, _ int) { fmt.Println(s) }", "+func show(s string, _ int) {}"}},
	} {
		m, err := parse(diffOf(c.lines...))
		m.Name = "Bad"
		if err == nil {
			if _, err = compose("p/p.go", product, []Mutant{m}); err != nil && !strings.Contains(err.Error(), "patch of Bad does not fit p/p.go") {
				t.Errorf("%s: %v: who made the patch is not told which it is", c.name, err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A patch may be what git prints.
func TestParse(t *testing.T) {
	m, err := parse("it is wrong\n\ndiff --git a/gate/x.go b/gate/x.go\nindex 1..2 100644\n--- a/gate/x.go\n+++ b/gate/x.go\n" +
		"@@ -1,3 +1,3 @@ func f() {\n \ta\n-\tb\n+\tc\n\n@@ -8 +8 @@\n-d\n--- a/y.go\n+++ b/y.go\n@@\n-e\n+f\n")
	if err != nil {
		t.Fatal(err)
	}
	x, y := m.edits["gate/x.go"], m.edits["y.go"]
	if m.About != "it is wrong" || m.Package != "gate" || len(x) != 2 || len(y) != 1 ||
		x[0] != (edit{"\ta\n\tb\n\n", "\ta\n\tc\n\n"}) || x[1] != (edit{"d\n", ""}) || y[0] != (edit{"e\n", "f\n"}) {
		t.Errorf("%+v", m)
	}
	for _, bad := range []string{"", "--- a/x.go\n", "about\n", "about\n--- a/x.go\n+++ b/x.go\n@@\nwhat\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is taken for a patch", bad)
		}
	}
}

func diffOf(lines ...string) string {
	return "about\n\n--- a/p/p.go\n+++ b/p/p.go\n@@\n" + strings.Join(lines, "\n") + "\n"
}

func mutantOf(t *testing.T, name string, lines ...string) Mutant {
	t.Helper()
	m, err := parse(diffOf(lines...))
	if err != nil {
		t.Fatal(err)
	}
	m.Name = name
	return m
}
