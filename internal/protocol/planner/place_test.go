package planner

import (
	"strings"
	"testing"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// onTime answers that some members renew on time, and that none is dead.
type onTime struct {
	Local
	ids string
}

func (o onTime) OnTime(id string) bool { return strings.Contains(o.ids, id) }
func (o onTime) Dead(string) bool      { return false }

// R18, R19, R22: who may get a duty that all can do. Members that are drained or set apart with a canary get one only if
// nobody else can do it, and none that a member has which is only late.
func TestR18WhoTakesADuty(t *testing.T) {
	for _, c := range []struct {
		name     string
		onTime   string
		receives string // slots
		apart    string // of a canary that went back
		drained  string
		owner    string
		want     string
	}{
		{"all receive", "abc", "abc", "", "", "", "abc"},
		{"one waits for its JoinDelay", "abc", "ab", "", "", "", "ab"},
		{"all wait for it", "abc", "", "", "", "", "abc"},
		{"one is set apart", "abc", "abc", "a", "", "", "bc"},
		{"those that receive are set apart, and another is on probation", "abc", "ab", "ab", "", "", "c"},
		{"one is drained", "abc", "bc", "", "a", "", "bc"},
		{"the others are late", "a", "", "", "a", "", "a"},
		{"the others are late, and one has it", "a", "", "", "a", "b", ""},
		{"the drained one has it", "a", "", "", "a", "a", "a"},
	} {
		tab := &table.Table{Slots: 1, Duties: []string{"d"}, Runs: []table.Run{{Slots: slot.Range{Last: 0}}, {
			Slots: slot.Range{First: 1, Last: 1}, Owner: c.owner}}}
		if c.apart != "" {
			tab.Canary = table.Canary{Build: "v2", State: table.CanaryBack, Steps: []int{5}, Since: 1}
		}
		var given []plan.Member
		for _, id := range []string{"a", "b", "c"} {
			m := table.Member{ID: id, Pod: id, PodUID: id, Build: "v1", Duties: "d", MaxFormat: table.Format}
			if strings.Contains(c.apart, id) {
				m.Build = "v2"
			}
			tab.Put(m)
			if strings.Contains(c.drained, id) {
				tab.Drains = append(tab.Drains, table.Drain{ID: id})
			}
			given = append(given, plan.Member{ID: id, Receives: strings.Contains(c.receives, id), Leaves: strings.Contains(c.drained, id)})
		}
		p := newProposer(View{Config: &Config{Self: table.Member{ID: "z"}}, Table: tab, Local: onTime{ids: c.onTime}, Phase: Joined})
		_, can := p.takers(tab, given, []string{"", c.owner}, false)
		got := ""
		for i, m := range given {
			if can(i, 0) {
				got += m.ID
			}
		}
		if got != c.want {
			t.Errorf("%s: %q may get the duty, want %q", c.name, got, c.want)
		}
	}
}
