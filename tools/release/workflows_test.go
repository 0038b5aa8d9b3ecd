package main

import (
	"bytes"
	"testing"

	"github.com/rhysd/actionlint"
)

// root is that of the checkout.
const root = "../.."

// TestWorkflows: actionlint finds nothing in the workflows, such as a misspelled key, a type error in an expression, or
// an input that an action does not have.
func TestWorkflows(t *testing.T) {
	var out bytes.Buffer
	l, err := actionlint.NewLinter(&out, &actionlint.LinterOptions{WorkingDir: root})
	if err != nil {
		t.Fatal(err)
	}
	found, err := l.LintRepository(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("%d findings:\n%s", len(found), out.String())
	}
	// And it does look.
	bad := "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n    - run: ls ${{ github.nothing }}\n"
	found, err = l.Lint("bad.yml", []byte(bad), nil)
	if err != nil || len(found) == 0 {
		t.Errorf("a bad workflow: %d findings, %v", len(found), err)
	}
}
