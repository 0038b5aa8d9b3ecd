package splitkcm

import (
	"encoding/csv"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const program = "kube-controller-manager"

// A Command is the command line of a kube-controller-manager: the program and its flags.
type Command struct {
	program string
	flags   []option
}

// An option is one flag of a command line as it is written there.
type option struct {
	name  string // without dashes, with hyphens
	value string
	bare  bool     // it has no value: a boolean flag
	words []string // as written: one word, or two
}

// ParseCommand reads a command line.
func ParseCommand(words []string) (Command, error) {
	if len(words) == 0 {
		return Command{}, fmt.Errorf("the command line is empty: it has to begin with %s", program)
	}
	if path.Base(words[0]) != program {
		return Command{}, fmt.Errorf("the command is %q, not %s itself: shells and wrappers are not read",
			words[0], program)
	}
	c := Command{program: words[0]}
	for rest := words[1:]; len(rest) > 0; {
		word := rest[0]
		if len(word) < 2 || word[0] != '-' || word == "--" {
			return Command{}, fmt.Errorf("%s takes flags only, got %q", program, word)
		}
		name, value, ok := strings.Cut(strings.TrimLeft(word, "-"), "=")
		f := option{name: strings.ReplaceAll(name, "_", "-"), value: value, words: rest[:1:1]}
		rest = rest[1:]
		if !ok {
			// Of the flags that matter here only booleans stand alone; no value of the others begins with a hyphen, except
			// the list of controllers.
			if len(rest) > 0 && (!strings.HasPrefix(rest[0], "-") || f.name == "controllers") {
				f.value, f.words = rest[0], []string{word, rest[0]}
				rest = rest[1:]
			} else {
				f.bare = true
			}
		}
		c.flags = append(c.flags, f)
	}
	return c, nil
}

// Words returns the command line.
func (c Command) Words() []string {
	words := []string{c.program}
	for _, f := range c.flags {
		words = append(words, f.words...)
	}
	return words
}

// Value returns the last value of a flag, or "".
func (c Command) Value(name string) string {
	value := ""
	for _, f := range c.flags {
		if f.name == name {
			value = f.value
		}
	}
	return value
}

// Bool returns the value of a boolean flag.
func (c Command) Bool(name string, absent bool) bool {
	value := absent
	for _, f := range c.flags {
		if f.name == name {
			v, err := strconv.ParseBool(f.value)
			value = f.bare || err == nil && v
		}
	}
	return value
}

// with returns the command with a flag set, in the place of its first occurrence, or at the end.
func (c Command) with(name, value string) Command {
	f := option{name: name, value: value, words: []string{"--" + name + "=" + value}}
	i := slices.IndexFunc(c.flags, func(f option) bool { return f.name == name })
	if i < 0 {
		c.flags = append(slices.Clone(c.flags), f)
		return c
	}
	rest := slices.DeleteFunc(slices.Clone(c.flags[i+1:]), func(f option) bool { return f.name == name })
	c.flags = append(append(slices.Clone(c.flags[:i]), f), rest...)
	return c
}

// without returns the command without a flag.
func (c Command) without(name string) Command {
	c.flags = slices.DeleteFunc(slices.Clone(c.flags), func(f option) bool { return f.name == name })
	return c
}

// controllers returns the list of --controllers.
func (c Command) controllers() ([]string, error) {
	var list []string
	found := false
	for _, f := range c.flags {
		if f.name != "controllers" {
			continue
		}
		found = true
		if f.value == "" {
			continue
		}
		part, err := csv.NewReader(strings.NewReader(f.value)).Read()
		if err != nil {
			return nil, fmt.Errorf("--controllers=%s: %w", f.value, err)
		}
		list = append(list, part...)
	}
	if !found {
		list = []string{"*"}
	}
	return list, nil
}

// runs returns the controllers that a process with this command runs when it leads, in order, as
// kube-controller-manager decides it: the first mention in --controllers counts. The token controller is not asked: it
// runs wherever there is a key to sign tokens with.
func (c Command) runs(cat Catalog) ([]string, error) {
	list, err := c.controllers()
	if err != nil {
		return nil, err
	}
	star, chosen := false, map[string]bool{}
	var errs []error
	for _, item := range list {
		if item == "*" {
			star = true
			continue
		}
		written, off := strings.CutPrefix(item, "-")
		name := cat.resolve(written)
		if name == "" {
			errs = append(errs, fmt.Errorf("--controllers: %w", cat.unknown(written)))
			continue
		}
		if _, ok := chosen[name]; !ok {
			chosen[name] = !off
		}
	}
	var out []string
	for _, name := range cat.names {
		on, ok := chosen[name]
		if !ok {
			on = star && !cat.OffByDefault(name)
		}
		if name == cat.resolve(tokenController) {
			on = needs[tokenController].met(c)
		}
		if on {
			out = append(out, name)
		}
	}
	return out, errors.Join(errs...)
}

// lease returns the name of the Lease for which processes with this command compete, or "" if they do not.
func (c Command) lease() string {
	if !c.Bool("leader-elect", true) {
		return ""
	}
	if name := c.Value("leader-elect-resource-name"); name != "" {
		return name
	}
	return program
}

// namespace returns the namespace of the Lease.
func (c Command) namespace() string {
	if ns := c.Value("leader-elect-resource-namespace"); ns != "" {
		return ns
	}
	return "kube-system"
}

const defaultPort = 10257

// port returns the port on which the process serves health and metrics.
func (c Command) port() (int, error) {
	text := c.Value("secure-port")
	if text == "" {
		return defaultPort, nil
	}
	p, err := strconv.Atoi(text)
	if err != nil || p < 1 || p > 65535 {
		return 0, fmt.Errorf("--secure-port=%s is no port from 1 to 65535, which the probes need", text)
	}
	return p, nil
}

// gate returns what --feature-gates says of a gate, and whether it does.
func (c Command) gate(name string) (on, set bool) {
	for _, f := range c.flags {
		if f.name != "feature-gates" {
			continue
		}
		for item := range strings.SplitSeq(f.value, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(item), "=")
			if strings.TrimPrefix(key, "kube:") == name {
				v, err := strconv.ParseBool(value)
				on, set = err == nil && v, true
			}
		}
	}
	return on, set
}

// SplitWords splits a command line as a shell does, with quotes and backslashes, but without variables, globs and
// anything else.
func SplitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			if r != '\n' {
				word.WriteRune(r)
				begun = true
			}
			escaped = false
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case strings.ContainsRune(" \t\r\n", r):
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("the command line ends within quotes or after a backslash: %s", line)
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
