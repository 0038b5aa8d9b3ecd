package group_test

import (
	"strings"
	"testing"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/test/require"
)

var known = []string{"website", "certificate", "backup", "-experiment"}

func TestParse(t *testing.T) {
	for _, test := range []struct{ patterns, runs, expected string }{
		{"", "backup certificate website", "backup certificate website"},
		{"*", "backup certificate website", "backup certificate website"},
		{"website", "website", "backup certificate website"},
		{"* -backup", "certificate website", "backup certificate website"},
		{"-backup *", "certificate website", "backup certificate website"},
		{"* experiment", "backup certificate experiment website", "backup certificate experiment website"},
		{"-website", "", "backup certificate website"},
	} {
		g, err := group.Parse("operator", known, strings.Fields(test.patterns)...)
		if err != nil {
			t.Errorf("%q: %v", test.patterns, err)
			continue
		}
		if got := strings.Join(g.Controllers(), " "); got != test.runs {
			t.Errorf("%q runs %q, want %q", test.patterns, got, test.runs)
		}
		if got := strings.Join(g.Expected(), " "); got != test.expected {
			t.Errorf("%q expects %q, want %q", test.patterns, got, test.expected)
		}
		for _, name := range g.Controllers() {
			if !g.Runs(name) {
				t.Errorf("%q: Runs(%s) is false", test.patterns, name)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct {
		program, known, patterns string
		want                     []string
	}{
		{"operator", "website backup", "webste bakup", []string{`"webste"`, "nearest is website", `"bakup"`, "nearest is backup"}},
		{"operator", "website backup", "-webste *", []string{`"-webste"`, "nearest is website"}},
		{"operator", "website", "website -website", []string{"drop one of them"}},
		{"operator", "website", "-*", []string{`leave "*" out`}},
		{"operator", "website -website", "*", []string{"website of operator: it is there twice"}},
		{"operator", "a,b", "*", []string{`"a,b" of operator`}},
		{"operator", "", "*", []string{"has no controllers"}},
		{"an operator", "website", "*", []string{`program "an operator"`}},
	} {
		program := test.program
		_, err := group.Parse(program, strings.Fields(test.known), strings.Fields(test.patterns)...)
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q of %q: %v, want an error with %q", test.patterns, test.known, err, want)
			}
		}
	}
}

func TestRunsPanicsForUnknownNames(t *testing.T) {
	g, err := group.Parse("operator", known)
	require.NoError(t, err)
	defer func() {
		if recover() == nil {
			t.Error("a controller that is in no group was not noticed")
		}
	}()
	g.Runs("other")
}

func TestGaps(t *testing.T) {
	all := []string{"backup", "certificate", "website"}
	running := []group.Running{
		{Rota: "web", Expected: all, Controllers: []string{"website", "certificate"}},
		{Rota: "web", Expected: all, Controllers: []string{"website"}}, // another member, in a rollout
		{Rota: "sweep", Expected: all, Controllers: []string{"certificate"}},
	}
	want := []group.Gap{{Controller: "backup"}, {Controller: "certificate", Rotas: "sweep, web"}}
	require.Equal(t, "gaps", want, group.Gaps(running))
	for i, want := range []string{"controller backup is in no group that runs", "certificate is in more than one group: rotas sweep, web"} {
		if got := group.Gaps(running)[i].String(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	running[0].Controllers, running[2].Controllers = []string{"website"}, []string{"backup", "certificate"}
	if got := group.Gaps(running); len(got) != 0 {
		t.Errorf("%v of groups that have everything once", got)
	}
}
