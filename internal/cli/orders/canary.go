package orders

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Canary is a canary that somebody asks for.
type Canary struct {
	// Build is that of its members.
	Build string
	// Namespaces, Steps and Every are as in table.Canary.
	Namespaces []string
	Steps      []int
	Every      time.Duration
	// Expect: no member of the build is there yet.
	Expect bool
}

// reads fails if a member does not read of canaries and pins.
func reads(t *table.Table) error {
	if old := t.NotReading(table.PlaceFormat); len(old) > 0 {
		return &OldMembersError{old, "a canary or a pin"}
	}
	return nil
}

// builds are the members' builds, in order, and how many members each has.
func builds(t *table.Table) (names []string, members map[string]int) {
	members = map[string]int{}
	for _, m := range t.Members {
		if members[m.Build]++; members[m.Build] == 1 {
			names = append(names, m.Build)
		}
	}
	slices.Sort(names)
	return names, members
}

// buildsText lists the members' builds.
func buildsText(t *table.Table) string {
	names, members := builds(t)
	out := make([]string, 0, len(names))
	for _, name := range names {
		text := name
		if text == "" {
			text = "unknown"
		}
		out = append(out, fmt.Sprintf("%s (%d)", text, members[name]))
	}
	return strings.Join(out, ", ")
}

// StartCanary starts a canary. One that has gone back ends, once its members are gone.
func StartCanary(t *table.Table, c Canary, by By) error {
	since, user, reason := by.cut()
	names := slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
	if len(names) == 0 {
		names = nil
	}
	want := table.Canary{
		Build: c.Build, Steps: c.Steps, Every: int64(c.Every / time.Second), Namespaces: names, Since: since, By: user,
		Reason: reason,
	}
	_, members := builds(t)
	was := &t.Canary
	switch {
	case was.State == table.CanaryRuns && was.Build == want.Build && was.Since == want.Since && was.By == want.By:
		return ErrAsItIs // a write of which nobody knew took effect
	case len(t.Members) == 0:
		return errors.New("the rota has no members, and a canary ends with the last member: start some first")
	case was.Runs() && was.Build == c.Build:
		return fmt.Errorf("a canary of build %s runs already: `rota canary status` shows it; abort it to start anew", c.Build)
	case was.Runs():
		return fmt.Errorf("a canary of build %s runs, and there can be one: promote or abort it first", was.Build)
	case was.On() && was.State == table.CanaryPromoted && members[was.Build] > 0:
		return fmt.Errorf("build %s is promoted, and members of other builds are left: the builds are %s. Roll these out to "+
			"it first, or abort it", was.Build, buildsText(t))
	case was.On() && was.State == table.CanaryBack && was.Build != c.Build && members[was.Build] > 0:
		return fmt.Errorf("build %s went back, and would get a share again, as its members are still there: the builds are "+
			"%s. Take them away first, or say that they are good: `rota canary promote`", was.Build, buildsText(t))
	case len(c.Namespaces) > 0 && t.Key != slot.KeyNamespace:
		return fmt.Errorf("objects are shared by %s here, so those of a namespace are in all slots: give a share instead, "+
			"or set the rota up with key %s", t.Key, slot.KeyNamespace)
	case members[c.Build] == 0 && !c.Expect:
		return fmt.Errorf("no member is of build %s: the builds are %s. If its members are yet to come, say --expect",
			c.Build, buildsText(t))
	case members[c.Build] == len(t.Members):
		return fmt.Errorf("all members are of build %s: there is none to have the other slots, and to compare it with",
			c.Build)
	}
	t.Canary = want
	return reads(t)
}

// ErrNoCanary says that there is none.
var ErrNoCanary = errors.New("there is no canary: `rota canary start` starts one")

// PromoteCanary has the canary's build take over.
func PromoteCanary(t *table.Table) error {
	c := &t.Canary
	_, members := builds(t)
	switch {
	case !c.On():
		return ErrNoCanary
	case c.State == table.CanaryPromoted:
		return ErrAsItIs
	case members[c.Build] == 0:
		return fmt.Errorf("no member is of the canary's build %s: the builds are %s", c.Build, buildsText(t))
	}
	t.Canary = table.Canary{
		Build: c.Build, State: table.CanaryPromoted, Steps: c.Steps, Step: c.Step, Began: c.Began, Every: c.Every,
		Namespaces: c.Namespaces, Since: c.Since, By: c.By, Reason: c.Reason,
	}
	return nil
}

// AbortCanary has the canary go back. One that no member has joined yet ends, and one that has gone back does once its
// members are gone.
func AbortCanary(t *table.Table, by By) error {
	c := &t.Canary
	_, user, reason := by.cut()
	_, members := builds(t)
	switch {
	case !c.On():
		return ErrNoCanary
	case c.State == table.CanaryBack && members[c.Build] > 0:
		return ErrAsItIs
	case members[c.Build] == 0 && (c.Began == 0 || c.State == table.CanaryBack):
		t.Canary = table.Canary{}
		return nil
	}
	verdict := "asked"
	if user != "" {
		verdict += " by " + user
	}
	if reason != "" {
		verdict += ": " + reason
	}
	verdict = table.OneSpaced(strings.ToValidUTF8(verdict[:min(len(verdict), table.MaxOrderText)], ""))
	t.Canary = table.Canary{
		Build: c.Build, State: table.CanaryBack, Steps: c.Steps, Step: c.Step, Began: c.Began, Every: c.Every,
		Namespaces: c.Namespaces, Since: c.Since, By: c.By, Reason: c.Reason, Verdict: verdict,
	}
	return nil
}

// Heaviest returns how many slots each member of the canary's build has at its largest step, and how many each of the
// others has without it, both rounded up; 0 members count as one.
func Heaviest(t *table.Table) (canary, others int) {
	_, members := builds(t)
	of := max(members[t.Canary.Build], 1)
	all := max(len(t.Members)-members[t.Canary.Build], 1)
	last := t.Clone()
	for !last.Canary.Last() {
		last.Canary.Step++
	}
	set := last.CanarySlots()
	return (set.Len() + of - 1) / of, (int(t.Slots) + all - 1) / all
}
