package supervise

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Command is a command whose arguments are templates.
type Command struct {
	args []*template.Template
	// Ordinals is true if a process gets one slot. Then each slot has a process. Otherwise one process has all slots.
	Ordinals bool
	// Namespaces is true if a process gets the names of its namespaces.
	Namespaces bool
	// Selector is true if a process gets a label selector.
	Selector bool
	// Share is true if the process gets the path of a socket. Then one process runs, which gets messages about
	// its share.
	Share bool
}

// share is the data of the templates.
type share struct {
	slots      slot.Set
	count      slot.Count
	key        slot.Key
	kinds      []schema.GroupKind
	namespaces func(slot.Set) []string
	socket     string
	of         *Command // records what the templates use
}

// Ordinal returns the number of the process's slot.
func (s share) Ordinal() (int, error) {
	s.of.Ordinals = true
	all := s.slots.Slots()
	if len(all) != 1 {
		return 0, fmt.Errorf("%d slots: a process with an ordinal has one", len(all))
	}
	return int(all[0]), nil
}

// Count returns the number of slots.
func (s share) Count() int { return int(s.count) }

// Namespaces returns the namespaces of the slots, separated by commas.
func (s share) Namespaces() string {
	s.of.Namespaces = true
	return strings.Join(s.namespaces(s.slots), ",")
}

// Selector returns a label selector for the objects in the slots.
func (s share) Selector() (string, error) {
	s.of.Selector = true
	if len(s.kinds) != 1 {
		return "", errors.New("a selector is for one kind, since each kind has its own label: give one --kind")
	}
	return s.selector(s.kinds[0], s.slots), nil
}

// selector returns a label selector for the objects of a kind in slots.
func (s share) selector(kind schema.GroupKind, slots slot.Set) string {
	return sharding.ExactSelector(sharding.HashLabel(s.key, kind), slots, s.count)
}

// Share returns the path of the socket.
func (s share) Share() string {
	s.of.Share = true
	return s.socket
}

// ParseCommand parses a command line. Arguments of the form NAME=VALUE before the program set its environment.
func ParseCommand(args []string) (*Command, error) {
	c := &Command{}
	if !slices.ContainsFunc(args, func(arg string) bool { return !isAssignment(arg) }) {
		return nil, errors.New("there is no command: give it after --")
	}
	for _, arg := range args {
		t, err := template.New("argument").Funcs(template.FuncMap{
			"add": func(a, b int) int { return a + b },
		}).Option("missingkey=error").Parse(arg)
		if err != nil {
			return nil, fmt.Errorf("argument %q: %w", arg, err)
		}
		c.args = append(c.args, t)
	}
	return c, nil
}

// isAssignment reports whether an argument sets an environment variable.
func isAssignment(arg string) bool {
	name, _, found := strings.Cut(arg, "=")
	return found && name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// line is a command line for a share. names are the namespaces in it, sorted.
type line struct{ env, args, names []string }

// within reports whether a process with another command line also does what this one would do: the lines are the same,
// or the other one has more namespaces.
func (l line) within(other line) bool {
	if l.names == nil {
		return slices.Equal(l.env, other.env) && slices.Equal(l.args, other.args)
	}
	return !slices.ContainsFunc(l.names, func(name string) bool {
		_, found := slices.BinarySearch(other.names, name)
		return !found
	})
}

// with returns the command line for a share.
func (c *Command) with(s share) (out line, err error) {
	s.of = c
	for _, t := range c.args {
		var b strings.Builder
		if err := t.Execute(&b, s); err != nil {
			return line{}, fmt.Errorf("argument %q: %w", t.Root.String(), err)
		}
		if len(out.args) == 0 && isAssignment(b.String()) {
			out.env = append(out.env, b.String())
		} else {
			out.args = append(out.args, b.String())
		}
	}
	if len(out.args) == 0 {
		return line{}, errors.New("there is no command after the environment")
	}
	return out, nil
}

// check renders the arguments once, to find errors and what they use.
func (c *Command) check(s share) error {
	s.slots = slot.SetOf(slot.Range{First: 0, Last: 0})
	s.namespaces = func(slot.Set) []string { return []string{"default"} }
	if _, err := c.with(s); err != nil {
		return err
	}
	switch {
	case c.Share && (c.Ordinals || c.Namespaces || c.Selector):
		return errors.New("{{.Share}} cannot be combined with {{.Selector}}, {{.Ordinal}} or {{.Namespaces}}: the messages " +
			"have them")
	case c.Share:
	case !c.Ordinals && !c.Namespaces && !c.Selector:
		return errors.New("no argument uses {{.Selector}}, {{.Ordinal}}, {{.Namespaces}} or {{.Share}}, so every process " +
			"would work on all objects")
	case c.Ordinals && (c.Namespaces || c.Selector):
		return errors.New("{{.Ordinal}} cannot be combined with {{.Selector}} or {{.Namespaces}}")
	case c.Namespaces && s.key != slot.KeyNamespace:
		return fmt.Errorf("{{.Namespaces}} needs --key %s, so that a namespace is in one slot", slot.KeyNamespace)
	}
	return nil
}
