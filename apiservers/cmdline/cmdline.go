// Package cmdline reads and changes the command line of a Kubernetes component: a program and its flags. Unchanged
// parts stay as they were written.
package cmdline

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Line is a program and its flags. It is a value: methods that change it return another.
type Line struct {
	Program string // as written, maybe with a path
	Flags   []Flag
}

// A Flag is one flag as it is written on a command line.
type Flag struct {
	Name  string // without dashes, with hyphens
	Value string
	Bare  bool     // without a value: a boolean flag
	words []string // as written: one word, or two
}

// Parse reads the command line of the named program. A separate word that begins with a hyphen is the value of a flag
// only if the flag's name is in dashed.
func Parse(program string, words []string, dashed ...string) (Line, error) {
	if len(words) == 0 {
		return Line{}, fmt.Errorf("the command line is empty: it must start with %s", program)
	}
	if path.Base(words[0]) != program {
		return Line{}, fmt.Errorf("the command is %q, not %s itself: shells and wrappers are not read", words[0], program)
	}
	l := Line{Program: words[0]}
	for rest := words[1:]; len(rest) > 0; {
		word := rest[0]
		if len(word) < 2 || word[0] != '-' || word == "--" {
			return Line{}, fmt.Errorf("%s takes flags only, got %q", program, word)
		}
		name, value, ok := strings.Cut(strings.TrimLeft(word, "-"), "=")
		f := Flag{Name: strings.ReplaceAll(name, "_", "-"), Value: value, words: rest[:1:1]}
		rest = rest[1:]
		if !ok {
			// Of the flags that matter here, only booleans have no value.
			if len(rest) > 0 && (!strings.HasPrefix(rest[0], "-") || slices.Contains(dashed, f.Name)) {
				f.Value, f.words = rest[0], []string{word, rest[0]}
				rest = rest[1:]
			} else {
				f.Bare = true
			}
		}
		l.Flags = append(l.Flags, f)
	}
	return l, nil
}

// Words returns the command line.
func (l Line) Words() []string {
	words := []string{l.Program}
	for _, f := range l.Flags {
		words = append(words, f.words...)
	}
	return words
}

// Has reports whether a flag is given.
func (l Line) Has(name string) bool {
	return slices.ContainsFunc(l.Flags, func(f Flag) bool { return f.Name == name })
}

// Value returns the last value of a flag, or "".
func (l Line) Value(name string) string {
	value := ""
	for _, f := range l.Flags {
		if f.Name == name {
			value = f.Value
		}
	}
	return value
}

// Values returns all values of a flag that may be repeated, in order.
func (l Line) Values(name string) []string {
	var values []string
	for _, f := range l.Flags {
		if f.Name == name {
			values = append(values, f.Value)
		}
	}
	return values
}

// List returns all values of a flag that takes a comma-separated list. The lists of repeated flags are concatenated.
func (l Line) List(name string) []string {
	var list []string
	for _, value := range l.Values(name) {
		if value != "" {
			list = append(list, strings.Split(value, ",")...)
		}
	}
	return list
}

// Bool returns the value of a boolean flag. A malformed value counts as false.
func (l Line) Bool(name string, absent bool) bool {
	value := absent
	for _, f := range l.Flags {
		if f.Name == name {
			v, err := strconv.ParseBool(f.Value)
			value = f.Bare || err == nil && v
		}
	}
	return value
}

// With returns the line with a flag once for each value, in the place of the flag's first occurrence, or at the end.
// All other occurrences are removed.
func (l Line) With(name string, values ...string) Line {
	flags := make([]Flag, 0, len(values))
	for _, value := range values {
		flags = append(flags, Flag{Name: name, Value: value, words: []string{"--" + name + "=" + value}})
	}
	i := slices.IndexFunc(l.Flags, func(f Flag) bool { return f.Name == name })
	if i < 0 {
		i = len(l.Flags)
	}
	l.Flags = slices.Concat(l.Flags[:i], flags, l.Without(name).Flags[i:])
	return l
}

// Without returns the line without a flag.
func (l Line) Without(name string) Line {
	l.Flags = slices.DeleteFunc(slices.Clone(l.Flags), func(f Flag) bool { return f.Name == name })
	return l
}
