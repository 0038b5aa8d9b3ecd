package table

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/slot"
)

// CanaryState says how far a canary has come.
type CanaryState uint8

// States of a canary.
const (
	// CanaryRuns: members of its build own chosen slots, and no others.
	CanaryRuns CanaryState = iota
	// CanaryPromoted: its build takes over, as in a rollout. Its members give no slots to others any more.
	CanaryPromoted
	// CanaryBack: it has gone back. Members of its build own nothing as long as there are others.
	CanaryBack
)

var canaryStates = [...]string{CanaryRuns: "runs", CanaryPromoted: "promoted", CanaryBack: "back"}

// String returns the state as the table has it.
func (s CanaryState) String() string {
	if int(s) < len(canaryStates) {
		return canaryStates[s]
	}
	return "unknown"
}

const (
	// MaxCanarySteps is how many steps a canary may have.
	MaxCanarySteps = 20
	// MaxCanaryNamespaces is how many namespaces a canary may have.
	MaxCanaryNamespaces = 50
	// MaxCanaryEvery is the longest time of a step, in seconds: 30 days.
	MaxCanaryEvery = 30 * 24 * 3600
	hundredPercent = 100
)

// Canary says that the members of a build own chosen slots, and no others (rule R22). The zero value is no canary.
type Canary struct {
	// Build is that of its members (Member.Build); empty: there is no canary.
	Build string
	State CanaryState
	// Steps are its shares of the slots, in percent, rising. Its slots are those of one step and of Namespaces. A first
	// step of 0 has those of Namespaces alone. A last one of 100 stands for that it is promoted: there would be nobody to
	// compare it with.
	Steps []int
	// Step is the present one, an index of Steps. Began is when it began, in Unix seconds by the clock of the planner that
	// saw it; 0: members of the build do not have its slots yet.
	Step  int
	Began int64
	// Every is how many seconds a step lasts at least, until planners go on to the next one by themselves; 0: they do not.
	Every int64
	// Namespaces are sorted, and have all of their objects in the canary's slots. Only with slot.KeyNamespace.
	Namespaces []string
	// Verdict says why it went back, at most 256 bytes, or is empty.
	Verdict string
	// Since, By and Reason are as in Pause.
	Since      int64
	By, Reason string
}

// On says whether there is a canary.
func (c *Canary) On() bool { return c.Build != "" }

// Runs says that there is one, and that it has neither been promoted nor gone back.
func (c *Canary) Runs() bool { return c.On() && c.State == CanaryRuns }

// Share is the canary's present share of the slots, in percent, without Namespaces.
func (c *Canary) Share() int {
	if c.State != CanaryRuns || c.Step >= len(c.Steps) {
		return 0
	}
	return c.Steps[c.Step]
}

// Last says that the present step is the last one.
func (c *Canary) Last() bool {
	return c.Step+1 >= len(c.Steps) || c.Steps[c.Step+1] == hundredPercent
}

// Same says that two are the same canary in the same step, and that the step has begun in both or in neither.
func (c *Canary) Same(other *Canary) bool { return c.SameStep(other) && c.Began == other.Began }

// SameStep says that two are the same canary in the same step.
func (c *Canary) SameStep(other *Canary) bool {
	return c.Build == other.Build && c.Since == other.Since && c.State == other.State && c.Step == other.Step
}

// Apart says that a member is of the canary's build and may own the canary's slots alone.
func (t *Table) Apart(m Member) bool {
	return t.Canary.On() && t.Canary.State != CanaryPromoted && m.Build == t.Canary.Build
}

// SlotOf returns the slot of an object as Pin.Object names it. With slot.KeyUID nobody can tell.
func (t *Table) SlotOf(object string) slot.Slot {
	namespace, name, namespaced := strings.Cut(object, "/")
	if !namespaced && t.Key != slot.KeyNamespace {
		namespace, name = "", object
	}
	return t.Slots.Of(t.Key.Hash(namespace, name, ""))
}

// CanarySlots are the slots that members of the canary's build should own; none unless it runs. A share is a run of
// slots that begins where the build's name says, and grows from there with each step: whatever happens to its members,
// no other objects meet the build.
func (t *Table) CanarySlots() (set slot.Set) {
	c := &t.Canary
	if !c.Runs() {
		return set
	}
	for _, namespace := range c.Namespaces {
		set.Add(t.SlotOf(namespace))
	}
	n := (int(t.Slots)*c.Share() + hundredPercent - 1) / hundredPercent
	first := int(t.Slots.Of(xxhash.Sum64String(c.Build)))
	for i := range n {
		set.Add(slot.Slot((first + i) % int(t.Slots)))
	}
	return set
}

// validCanary checks it but for who reads of it.
func (t *Table) validCanary() error {
	c := &t.Canary
	if !c.On() {
		if c.Since != 0 || len(c.Steps)+len(c.Namespaces) > 0 {
			return errors.New("canary: it has no build")
		}
		return nil
	}
	if err := validOrder(c.Since, c.By, c.Reason); err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	switch {
	case !isWord(c.Build) || c.Build == None:
		return fmt.Errorf("canary: the build %q must be one printable word", c.Build)
	case int(c.State) >= len(canaryStates):
		return errors.New("canary: unknown state")
	case len(c.Steps) == 0 || len(c.Steps) > MaxCanarySteps:
		return fmt.Errorf("canary: %d steps: want 1 to %d", len(c.Steps), MaxCanarySteps)
	case c.Step < 0 || c.Step >= len(c.Steps):
		return fmt.Errorf("canary: step %d, of %d", c.Step, len(c.Steps))
	case c.Steps[c.Step] == hundredPercent:
		return errors.New("canary: its present step has 100 %, with which there is nobody to compare it with")
	case c.Began < 0 || c.Every < 0 || c.Every > MaxCanaryEvery:
		return fmt.Errorf("canary: began at %d, with steps of %d s: want Unix seconds, and at most %d s", c.Began, c.Every,
			MaxCanaryEvery)
	case len(c.Verdict) > MaxOrderText || c.Verdict != OneSpaced(c.Verdict) || c.Verdict == None:
		return fmt.Errorf("canary: verdict %q: at most %d bytes, with single spaces between words, and no dash alone",
			c.Verdict, MaxOrderText)
	case len(c.Namespaces) > 0 && t.Key != slot.KeyNamespace:
		return fmt.Errorf("canary: namespaces need the key %v, and the table has %v", slot.KeyNamespace, t.Key)
	case len(c.Namespaces) > MaxCanaryNamespaces:
		return fmt.Errorf("canary: %d namespaces: at most %d", len(c.Namespaces), MaxCanaryNamespaces)
	}
	for i, percent := range c.Steps {
		least := 1
		switch {
		case i > 0:
			least = c.Steps[i-1] + 1
		case len(c.Namespaces) > 0:
			least = 0
		}
		if percent < least || percent > hundredPercent {
			return fmt.Errorf("canary: step %d has %d %%: want %d to 100", i+1, percent, least)
		}
	}
	for i, name := range c.Namespaces {
		if !isName(name) || i > 0 && c.Namespaces[i-1] >= name {
			return fmt.Errorf("canary: namespaces %q: want names in order", c.Namespaces)
		}
	}
	return nil
}

// isName says that a text can be the name of an object or a namespace, in the table's text: no list has it as two.
func isName(s string) bool { return isWord(s) && s != None && !strings.ContainsAny(s, "/,%") }

// columns returns the columns of the canary in its line, between the first word and by.
func (c *Canary) columns() string {
	steps := make([]string, len(c.Steps))
	for i, percent := range c.Steps {
		steps[i] = strconv.Itoa(percent)
	}
	return fmt.Sprintf("%s %s %s %d %d %d %s %s %d", c.Build, c.State, strings.Join(steps, ","), c.Step, c.Began, c.Every,
		orNone(strings.Join(c.Namespaces, ",")), orNone(escapeAll(c.Verdict, "%")), c.Since)
}

// canaryColumns is how many there are.
const canaryColumns = 9

// readCanary is the inverse of columns.
func readCanary(w []string) (c Canary, err error) {
	c.Build = w[0]
	state := slices.Index(canaryStates[:], w[1])
	if state < 0 {
		return c, fmt.Errorf("%q: unknown state", w[1])
	}
	c.State = CanaryState(state)
	for text := range strings.SplitSeq(w[2], ",") {
		percent, err := strconv.Atoi(text)
		if err != nil {
			return c, err
		}
		c.Steps = append(c.Steps, percent)
	}
	if w[6] != None {
		c.Namespaces = strings.Split(w[6], ",")
	}
	var errs [5]error
	c.Step, errs[0] = strconv.Atoi(w[3])
	c.Began, errs[1] = strconv.ParseInt(w[4], 10, 64)
	c.Every, errs[2] = strconv.ParseInt(w[5], 10, 64)
	c.Verdict, errs[3] = unescape(orEmpty(w[7]))
	c.Since, errs[4] = strconv.ParseInt(w[8], 10, 64)
	return c, errors.Join(errs[:]...)
}
