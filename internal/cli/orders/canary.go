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

// Canary describes a canary to start.
type Canary struct {
	// Build is the build of its members.
	Build string
	// Namespaces, Steps and Every are as in table.Canary.
	Namespaces []string
	Steps      []int
	Every      time.Duration
	// Expect allows a build that has no members yet.
	Expect bool
}

// checkReaders returns an error if a member's release does not support canaries and pins.
func checkReaders(t *table.Table) error {
	if old := t.NotReading(table.PlaceFormat); len(old) > 0 {
		return &OldMembersError{old, "a canary or a pin"}
	}
	return nil
}

// builds returns the members' builds, sorted, and the number of members of each.
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

// StartCanary starts a canary. It replaces one that was rolled back and has no members left.
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
		return ErrNoChange // an earlier write took effect after its error
	case len(t.Members) == 0:
		return errors.New("the rota has no members, and a canary ends with the last member: start some first")
	case was.Runs() && was.Build == c.Build:
		return fmt.Errorf("a canary of build %s is running already: `rota canary status` shows it; abort it to start a new "+
			"one", c.Build)
	case was.Runs():
		return fmt.Errorf("a canary of build %s is running, and there can only be one: promote or abort it first", was.Build)
	case was.On() && was.State == table.CanaryPromoted && members[was.Build] > 0:
		return fmt.Errorf("build %s is promoted, but members of other builds are left: the builds are %s. Update them to "+
			"it first, or abort it", was.Build, buildsText(t))
	case was.On() && was.State == table.CanaryBack && was.Build != c.Build && members[was.Build] > 0:
		return fmt.Errorf("build %s was rolled back, and its members, which are still there, would get a share again: the "+
			"builds are %s. Remove them first, or promote the build: `rota canary promote`", was.Build, buildsText(t))
	case len(c.Namespaces) > 0 && t.Key != slot.KeyNamespace:
		return fmt.Errorf("this rota shards by %s, so a namespace's objects are in all slots: give a share instead, "+
			"or set up the rota with key %s", t.Key, slot.KeyNamespace)
	case members[c.Build] == 0 && !c.Expect:
		return fmt.Errorf("no member has build %s: the builds are %s. Use --expect if its members will start later",
			c.Build, buildsText(t))
	case members[c.Build] == len(t.Members):
		return fmt.Errorf("all members have build %s: there are no others to own the other slots and to compare with",
			c.Build)
	}
	t.Canary = want
	return checkReaders(t)
}

// ErrNoCanary is returned if there is no canary.
var ErrNoCanary = errors.New("there is no canary: `rota canary start` starts one")

// PromoteCanary promotes the canary's build.
func PromoteCanary(t *table.Table) error {
	c := &t.Canary
	_, members := builds(t)
	switch {
	case !c.On():
		return ErrNoCanary
	case c.State == table.CanaryPromoted:
		return ErrNoChange
	case members[c.Build] == 0:
		return fmt.Errorf("no member has the canary's build %s: the builds are %s", c.Build, buildsText(t))
	}
	t.Canary = table.Canary{
		Build: c.Build, State: table.CanaryPromoted, Steps: c.Steps, Step: c.Step, Began: c.Began, Every: c.Every,
		Namespaces: c.Namespaces, Since: c.Since, By: c.By, Reason: c.Reason,
	}
	return nil
}

// AbortCanary rolls the canary back. A canary that has no members, or whose members are gone after a rollback, ends.
func AbortCanary(t *table.Table, by By) error {
	c := &t.Canary
	_, user, reason := by.cut()
	_, members := builds(t)
	switch {
	case !c.On():
		return ErrNoCanary
	case c.State == table.CanaryBack && members[c.Build] > 0:
		return ErrNoChange
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

// Heaviest returns the number of slots per member of the canary's build at its largest step, and per other member
// without the canary, rounded up. 0 members count as one.
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
