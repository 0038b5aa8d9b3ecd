package planner

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// stepCase is a row of the table test of a step: member a's view, the table, and what the step does. For the notation
// of tables, see parseTable.
type stepCase struct {
	name  string
	given given
	table string
	// want is what the step does: "now" if it writes a change now, or "in 2s" if it asks to be called again then; "last"
	// if it skips the steps after it; its notices; the namesake. The fields of the table that change follow after "|". A
	// want that begins with "|" stands for "now".
	want string
}

// given is the view of member a. By default it is the first planner, and all members renew. IDs are single letters.
type given struct {
	allRenew
	phase                                       Phase
	rank                                        int
	waited                                      time.Duration // how long ago member a saw the same for the first time
	slots                                       string        // a letter of stateLetters for each slot
	slot                                        Slot          // all slots, except for their State
	dead, expelled, late, silent, unseen, quiet string        // quiet members are not Alive
	young                                       string        // members that were first seen at stepStart
	old                                         int           // the newest format of process x, which wants to join
	writes                                      time.Duration // WritesEnd
	view                                        func(*View)   // makes other changes to the view
	draft                                       draft         // the result of earlier steps
}

const (
	// stateLetters are for Elsewhere, Warming, Warm, Open, Draining, Drained and Sent.
	stateLetters = ".wWodDS"
	stepStart    = time.Hour
	moment       = 100 * time.Millisecond // Coalesce
	secondWaits  = 250 * time.Millisecond // the second planner
)

func (g given) Dead(id string) bool            { return strings.Contains(g.dead+g.expelled, id) }
func (g given) Renewing(id string) bool        { return !strings.Contains(g.silent, id) }
func (g given) OnTime(id string) bool          { return !strings.Contains(g.late, id) }
func (g given) Seen(id string) bool            { return !strings.Contains(g.unseen, id) }
func (g given) Alive(id string) bool           { return !strings.Contains(g.quiet, id) }
func (g given) WritesEnd(string) time.Duration { return g.writes }
func (g given) TooOld(format int) string {
	if g.old > 0 && g.old < format {
		return "x"
	}
	return ""
}
func (g given) Slot(s slot.Slot) Slot {
	letter := (g.slots + strings.Repeat(".", int(s)+1))[s]
	g.slot.State = State(strings.IndexByte(stateLetters, letter))
	return g.slot
}

// testStep runs a step alone in each of the cases. The phase applies to cases that have none. A step that acts after
// waiting must still wait a nanosecond earlier.
func testStep(t *testing.T, phase Phase, step func(*proposer, *draft), cases []stepCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.given.phase == Absent {
				c.given.phase = phase
			}
			before := parseTable(t, c.table)
			got, after := c.given.run(t, step, before)
			does, changes, changed := strings.Cut(c.want, " | ")
			if changed && does == "" {
				does = "now"
			}
			if got != does {
				t.Errorf("the step does %q, want %q", got, does)
			}
			want := parseTable(t, strings.TrimSuffix(c.table+" | "+changes, " | "))
			want.Epoch = after.Epoch
			if diff := cmp.Diff(table.Encode(want), table.Encode(after)); diff != "" {
				t.Errorf("the table after the step (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(parseTable(t, c.table), before); diff != "" {
				t.Errorf("the step changed its input:\n%s", diff)
			}
			if c.given.waited > 0 && strings.HasPrefix(does, "now") {
				c.given.waited--
				if got, _ := c.given.run(t, step, before); got != "in 1ns" {
					t.Errorf("a nanosecond earlier the step does %q, want %q", got, "in 1ns")
				}
			}
		})
	}
}

// run returns what the step does, and the table after it. If member a has waited, the step also runs before the wait.
func (g given) run(t *testing.T, step func(*proposer, *draft), before *table.Table) (string, *table.Table) {
	t.Helper()
	self, named := before.Member("a")
	if !named {
		self = parseTable(t, "a | 0-3 -").Members[0]
	}
	v := View{
		Config: &Config{
			Self: self, LeaseDuration: 15 * time.Second, RetryPeriod: 2 * time.Second, Coalesce: moment,
			SettleDelay: time.Second, JoinDelay: 3 * time.Second, RolloutDelay: 10 * time.Second, MaxTable: 1 << 16,
		},
		Local: g, Now: stepStart, Wall: 10_000, Table: before, Version: "1", Phase: g.phase, Rank: g.rank,
		Expelled: map[string]bool{}, Complete: true,
	}
	v.planning.seen = map[string]time.Duration{}
	for _, id := range strings.Split(g.young, "") {
		v.planning.seen[id] = stepStart
	}
	for _, id := range strings.Split(g.expelled, "") {
		v.Expelled[id] = true
	}
	if g.view != nil {
		g.view(&v)
	}
	var p *proposer
	var d draft
	for _, v.Now = range slices.Compact([]time.Duration{stepStart, stepStart + g.waited}) {
		p, d = newProposer(v), g.draft
		d.next = before
		step(p, &d)
		v.Memory = p.Memory
	}
	var does []string
	switch {
	case d.due:
		does = append(does, "now")
	case p.out.Again != never:
		does = append(does, fmt.Sprintf("in %v", p.out.Again-v.Now))
	}
	if d.done {
		does = append(does, "last")
	}
	for _, n := range p.out.Notices {
		does = append(does, n.Reason)
	}
	if p.out.Namesake != "" {
		does = append(does, "ends for "+p.out.Namesake)
	}
	after := d.next.Clone()
	after.Seal(max(before.Epoch+1, d.top))
	require.NoError(t, after.Valid())
	had, has := before.Owned("a"), after.Owned("a")
	if lost := had.Minus(has); !d.done && g.draft.transfers.Empty() && lost != d.transfers {
		t.Errorf("the step gives away slots %v, and its transfers are %v", lost, d.transfers)
	}
	return strings.Join(does, ", "), after
}

var (
	fieldOf = regexp.MustCompile(`^(\d|notes|gone|duties|expels|orders|pins|older)`)
	// noEpoch matches a run with an owner and without an epoch.
	noEpoch = regexp.MustCompile(`^(.*\d [a-z])( [-a-z].*)?$`)
)

// parseTable parses a table of 4 hash slots. Its fields are separated by " | ", and their lines by ", ": members, runs,
// and named fields of the table's text. A later field replaces an earlier one. A member is its ID and the columns that
// differ from the defaults. An owner without an epoch has had its slots since epoch 5.
func parseTable(t *testing.T, text string) *table.Table {
	t.Helper()
	data := map[string]string{"format": "5", "epoch": "20", "slots": "4", "key": "Name"}
	for field := range strings.SplitSeq(text, " | ") {
		name, rest, _ := strings.Cut(field, " ")
		switch word := fieldOf.FindString(field); {
		case word == "":
			name, rest = "members", field
			data["able"], data["labels"] = "", ""
		case len(word) == 1:
			name, rest = "runs", field
		}
		lines := strings.Split(rest, ", ")
		for i, line := range lines {
			switch name {
			case "members":
				lines[i] = memberLine(line, data)
			case "runs", "duties":
				lines[i] = noEpoch.ReplaceAllString(line, "$1 5$2")
			}
		}
		data[name] = strings.Join(lines, "\n")
	}
	out, err := table.Decode(data)
	require.NoError(t, err)
	out.Epoch = 10
	return out
}

// memberLine returns a member's line in the table's text. It adds to the fields able and labels.
func memberLine(short string, data map[string]string) string {
	id, rest, _ := strings.Cut(short, " ")
	line := fmt.Sprintf("%s pod=%s uid=uid-%s container=main build=v1 weight=1 formats=1-5 joined=1", id, id, id)
	for word := range strings.FieldsSeq(rest) {
		switch column, value, _ := strings.Cut(word, "="); column {
		case "leaving":
			line += " leaving"
		case "able":
			data["able"] += value + " " + id + "\n"
		case "labels":
			data["labels"] += id + " " + value + "\n"
		default:
			line = regexp.MustCompile(column+`=\S+`).ReplaceAllString(line, word)
		}
	}
	return regexp.MustCompile(`\w+=`).ReplaceAllString(line, "")
}
