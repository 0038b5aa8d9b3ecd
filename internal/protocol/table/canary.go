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

// CanaryState is the phase that a canary is in.
type CanaryState uint8

// States of a canary.
const (
	// CanaryRuns: members of the canary's build own the canary's slots and no others.
	CanaryRuns CanaryState = iota
	// CanaryPromoted: the build takes over the other slots, as in a rollout. Its members no longer give slots to other
	// builds.
	CanaryPromoted
	// CanaryBack: the canary has gone back. Members of its build own nothing while there are members of other builds.
	CanaryBack
)

var canaryStates = [...]string{CanaryRuns: "runs", CanaryPromoted: "promoted", CanaryBack: "back"}

// String returns the state's word in the table's text.
func (s CanaryState) String() string {
	if int(s) < len(canaryStates) {
		return canaryStates[s]
	}
	return "unknown"
}

const (
	// MaxCanarySteps is the highest number of steps of a canary.
	MaxCanarySteps = 20
	// MaxCanaryNamespaces is the highest number of namespaces of a canary.
	MaxCanaryNamespaces = 50
	// MaxCanaryEvery is the longest duration of a step, in seconds: 30 days.
	MaxCanaryEvery = 30 * 24 * 3600
	hundredPercent = 100
)

// Canary restricts the members of one build to chosen slots (rule R22). The zero value is no canary.
type Canary struct {
	// Build is the Member.Build of the canary's members. It is empty if there is no canary.
	Build string
	State CanaryState
	// Steps are the canary's shares of the slots, in percent, rising. In each step the canary's slots are that share plus
	// the slots of Namespaces. The first step may be 0, which leaves the slots of Namespaces. A last step of 100 means
	// promotion: it cannot be run as a step, since there would be no other build to compare with.
	Steps []int
	// Step is the index of the current step in Steps. Began is when the step began, in Unix seconds by the clock of the
	// planner that saw it. It is 0 until members of the build own the step's slots.
	Step  int
	Began int64
	// Every is the shortest duration of a step, in seconds, before planners start the next one. If it is 0, people start
	// each step.
	Every int64
	// Namespaces are sorted. All their objects are in the canary's slots. They need slot.KeyNamespace.
	Namespaces []string
	// Verdict is the reason why the canary went back, in at most 256 bytes. It may be empty.
	Verdict string
	// Since, By and Reason are as in Pause.
	Since      int64
	By, Reason string
}

// On reports whether there is a canary.
func (c *Canary) On() bool { return c.Build != "" }

// Runs reports whether there is a canary that was neither promoted nor taken back.
func (c *Canary) Runs() bool { return c.On() && c.State == CanaryRuns }

// Share returns the canary's current share of the slots, in percent, without the slots of Namespaces.
func (c *Canary) Share() int {
	if c.State != CanaryRuns || c.Step >= len(c.Steps) {
		return 0
	}
	return c.Steps[c.Step]
}

// Last reports whether the current step is the last one before promotion.
func (c *Canary) Last() bool {
	return c.Step+1 >= len(c.Steps) || c.Steps[c.Step+1] == hundredPercent
}

// Same reports whether two values are the same canary in the same step, and the step began at the same time.
func (c *Canary) Same(other *Canary) bool { return c.SameStep(other) && c.Began == other.Began }

// SameStep reports whether two values are the same canary in the same step.
func (c *Canary) SameStep(other *Canary) bool {
	return c.Build == other.Build && c.Since == other.Since && c.State == other.State && c.Step == other.Step
}

// Apart reports whether a member belongs to the canary's build and is restricted to the canary's slots.
func (t *Table) Apart(m Member) bool {
	return t.Canary.On() && t.Canary.State != CanaryPromoted && m.Build == t.Canary.Build
}

// SlotOf returns the slot of an object that is named as in Pin.Object. With slot.KeyUID the result is meaningless.
func (t *Table) SlotOf(object string) slot.Slot {
	namespace, name, namespaced := strings.Cut(object, "/")
	if !namespaced && t.Key != slot.KeyNamespace {
		namespace, name = "", object
	}
	return t.Slots.Of(t.Key.Hash(namespace, name, ""))
}

// CanarySlots returns the slots that members of the canary's build should own. It is empty unless the canary runs. A
// share is a run of slots that starts at the hash of the build's name and grows with each step. So the same objects
// stay with the build, whatever happens to its members.
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

// validCanary checks the canary. It does not check that every member reads PlaceFormat.
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
		return errors.New("canary: its current step has 100 %, which leaves no members to compare it with")
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

// isName reports whether s can be the name of an object or a namespace in the table's text. Names cannot contain
// separators.
func isName(s string) bool { return isWord(s) && s != None && !strings.ContainsAny(s, "/,%") }

// columns returns the columns of the canary's line, without the first word and without by and reason.
func (c *Canary) columns() string {
	steps := make([]string, len(c.Steps))
	for i, percent := range c.Steps {
		steps[i] = strconv.Itoa(percent)
	}
	return fmt.Sprintf("%s %s %s %d %d %d %s %s %d", c.Build, c.State, strings.Join(steps, ","), c.Step, c.Began, c.Every,
		orNone(strings.Join(c.Namespaces, ",")), orNone(escapeAll(c.Verdict, "%")), c.Since)
}

// canaryColumns is the number of columns that the method columns writes.
const canaryColumns = 9

// readCanary parses what the method columns wrote.
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
