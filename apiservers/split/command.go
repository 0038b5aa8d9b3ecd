package split

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/apiservers/cmdline"
)

const program = "kube-controller-manager"

// A Command is the command line of a kube-controller-manager: the program and its flags.
type Command struct{ cmdline.Line }

// ParseCommand parses a command line. Of the values in separate words, only the list of controllers may begin with a
// hyphen.
func ParseCommand(words []string) (Command, error) {
	line, err := cmdline.Parse(program, words, "controllers")
	return Command{line}, err
}

// with returns the command with a flag set.
func (c Command) with(name, value string) Command { return Command{c.With(name, value)} }

// without returns the command without a flag.
func (c Command) without(name string) Command { return Command{c.Without(name)} }

// controllers returns the list in --controllers.
func (c Command) controllers() ([]string, error) {
	var list []string
	found := false
	for _, f := range c.Flags {
		if f.Name != "controllers" {
			continue
		}
		found = true
		if f.Value == "" {
			continue
		}
		part, err := csv.NewReader(strings.NewReader(f.Value)).Read()
		if err != nil {
			return nil, fmt.Errorf("--controllers=%s: %w", f.Value, err)
		}
		list = append(list, part...)
	}
	if !found {
		list = []string{"*"}
	}
	return list, nil
}

// runs returns, in order, the controllers that a process with this command runs when it leads. As in
// kube-controller-manager, the first mention in --controllers counts. The list does not control the token controller,
// which runs wherever there is a key to sign tokens with.
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

// lease returns the name of the Lease that processes with this command compete for, or "" if they do not.
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
		return 0, fmt.Errorf("--secure-port=%s is not a port from 1 to 65535, which the probes need", text)
	}
	return p, nil
}

// gate returns the value of a gate in --feature-gates, and whether it is set.
func (c Command) gate(name string) (on, set bool) {
	for _, f := range c.Flags {
		if f.Name != "feature-gates" {
			continue
		}
		for item := range strings.SplitSeq(f.Value, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(item), "=")
			if strings.TrimPrefix(key, "kube:") == name {
				v, err := strconv.ParseBool(value)
				on, set = err == nil && v, true
			}
		}
	}
	return on, set
}

// Words splits a command line like a shell, with quotes and backslashes, but without variables, globs or anything else.
func Words(line string) ([]string, error) {
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
