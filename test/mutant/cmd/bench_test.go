package main

import (
	"errors"
	"testing"

	"github.com/rota-dev/rota/test/mutant"
)

// A check that crashes, or has nothing to run, has found nothing.
func TestJudge(t *testing.T) {
	failure := errors.New("exit status 1")
	for _, c := range []struct {
		name, out string
		err       error
		verdict   Verdict
		found     string
	}{
		{"pass", "PASS\n", nil, Survived, ""},
		{"nothing to run", "testing: warning: no tests to run\nPASS\n", nil, Crashed, "there are no such tests"},
		{
			"a script", "--- FAIL: TestR06Transfer (0.00s)\n    --- FAIL: TestR06Transfer/next_dies (0.1s)\n" +
				"        script_test.go:1: violated: two open: slots 1 are opened\nFAIL\n",
			failure, Caught, "TestR06Transfer/next_dies: two open",
		},
		{"a test", "--- FAIL: TestOwns (0.00s)\n    gate_test.go:1: owns\nFAIL\n", failure, Caught, "TestOwns"},
		{
			"a panic", "--- FAIL: TestOwns (0.00s)\npanic: runtime error: index out of range [recovered]\n",
			failure, Crashed, "panic: runtime error: index out of range [recovered]",
		},
		{"no word", "", failure, Crashed, "exit status 1"},
	} {
		if verdict, found := judge(c.out, c.err); verdict != c.verdict || found != c.found {
			t.Errorf("%s: %s %q, want %s %q", c.name, verdict, found, c.verdict, c.found)
		}
	}
}

// So it is with the report of the faults on a real API server.
func TestJudgeFaults(t *testing.T) {
	failure := errors.New("exit status 1")
	for _, c := range []struct {
		name, out string
		err       error
		verdict   Verdict
		found     string
	}{
		{"all is well", `{"total":{"runs":8}}`, nil, Survived, ""},
		{
			"something is wrong", `{"total":{"runs":2},"failing":[{"fault":"rollout","why":["3 overlaps without a pause","1 leaks"]}]}`,
			failure, Caught, "rollout: 3 overlaps without a pause, 1 leaks",
		},
		{"not judged", `{"total":{"runs":1},"failing":[{"fault":"kill","error":"no rest","why":["not judged: no rest"]}]}`, failure, Crashed, "kill: no rest"},
		{"nothing was run", `{"total":{"runs":0}}`, nil, Crashed, "there is no report"},
		{"no report", "", failure, Crashed, "exit status 1"},
	} {
		if verdict, found := judgeFaults([]byte(c.out), c.err); verdict != c.verdict || found != c.found {
			t.Errorf("%s: %s %q, want %s %q", c.name, verdict, found, c.verdict, c.found)
		}
	}
}

// Every mutant has a name of its own, and a check that runs the code it is in.
func TestEveryMutantIsLookedFor(t *testing.T) {
	seen := map[string]bool{}
	all, err := mutant.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		name := m.Name
		if seen[name] {
			t.Errorf("two mutants are called %s", name)
		}
		seen[name] = true
		reached := false
		for _, tool := range checks() {
			if tool.reached(m) {
				reached = true
				if tool.probe == nil && tool.faults == nil && len(tool.tests[m.Package]) == 0 {
					t.Errorf("%s: %s has no tests of package %s", name, tool.name, m.Package)
				}
			}
		}
		if !reached {
			t.Errorf("%s: no check runs package %s", name, m.Package)
		}
	}
}
