package table

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/slot"
)

// Gone is a deleted object whose deletion the former owner of its slot left to the next owner (rule R15).
type Gone struct {
	Slot slot.Slot
	// Kind has the form of schema.GroupKind, as in Versions.
	Kind string
	// Namespace is empty for cluster-scoped objects.
	Namespace, Name string
}

// CompareGone orders by slot, kind, namespace and name.
func CompareGone(a, b Gone) int {
	return cmp.Or(
		cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}

// Fits reports whether the table's text can hold g: the kind is a word, and the name is not empty or too long.
func (g Gone) Fits() bool {
	return isWord(g.Kind) && g.Kind != None && g.Name != "" && len(g.Namespace)+len(g.Name) <= 512
}

// words returns the name in the form of the table's text. Most names are DNS names, but the names of roles, for
// example, may contain any characters except "/" and "%".
func (g Gone) words() string {
	name := escape(g.Name)
	if g.Namespace != "" {
		name = escape(g.Namespace) + "/" + name
	}
	return name
}

// escape turns a name into a word: "/", "%" and characters that are not allowed in a word become %XX.
func escape(name string) string { return escapeAll(name, "/%") }

// escapeAll turns a text into a word: special characters and those that are not allowed in a word become %XX.
func escapeAll(text, special string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || strings.IndexByte(special, c) >= 0 {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// unescape undoes escape and escapeAll.
func unescape(word string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] != '%' {
			out.WriteByte(word[i])
			continue
		}
		code, err := strconv.ParseUint(word[i+1:min(i+3, len(word))], 16, 8)
		if err != nil || i+3 > len(word) {
			return "", fmt.Errorf("after %q: want %%XX", word[:i])
		}
		out.WriteByte(byte(code))
		i += 2
	}
	return out.String(), nil
}

// GoneSize returns an upper bound for the size of the names in the table's text, in bytes.
func GoneSize(gone []Gone) int {
	size := 0
	for _, g := range gone {
		size += len(g.Kind) + len(g.words()) + 8
	}
	return size
}

// PutGone adds names to Gone.
func (t *Table) PutGone(gone []Gone) {
	t.Gone = append(t.Gone, gone...)
	slices.SortFunc(t.Gone, CompareGone)
	t.Gone = slices.Compact(t.Gone)
}

// DropGone removes the names of slot s from Gone.
func (t *Table) DropGone(s slot.Slot) {
	t.Gone = slices.DeleteFunc(t.Gone, func(g Gone) bool { return g.Slot == s })
}

// GoneIn returns the names in Gone that are in the given slots.
func (t *Table) GoneIn(set slot.Set) []Gone {
	var out []Gone
	for _, g := range t.Gone {
		if set.Has(g.Slot) {
			out = append(out, g)
		}
	}
	return out
}

// Reads reports whether every member reads tables of the given format.
func (t *Table) Reads(format int) bool {
	return !slices.ContainsFunc(t.Members, func(m Member) bool { return m.MaxFormat < format || m.MinFormat > format })
}

func (t *Table) validGone() error {
	if len(t.Gone) == 0 {
		return nil
	}
	if !t.Reads(GoneFormat) {
		return fmt.Errorf("deletions to be reconciled need table format %d, which not every member reads", GoneFormat)
	}
	unsettled := t.where(func(r Run) bool { return r.Unsettled })
	for i, g := range t.Gone {
		switch {
		case !g.Fits():
			return fmt.Errorf("deletion of %s %q in slot %d: the kind is not a word, or the name is empty or too long",
				g.Kind, g.Namespace+"/"+g.Name, g.Slot)
		case t.IsDuty(g.Slot) || !unsettled.Has(g.Slot):
			return fmt.Errorf("deletion of %s %s: slot %d is not an unsettled hash slot", g.Kind, g.words(), g.Slot)
		case i > 0 && CompareGone(t.Gone[i-1], g) >= 0:
			return fmt.Errorf("deletion of %s %s: not in order", g.Kind, g.words())
		}
	}
	return nil
}

// encodeGone writes a line for each slot and kind.
func encodeGone(gone []Gone) string {
	var out strings.Builder
	for i, g := range gone {
		if before := gone[max(i-1, 0)]; i == 0 || before.Slot != g.Slot || before.Kind != g.Kind {
			if i > 0 {
				out.WriteByte('\n')
			}
			fmt.Fprintf(&out, "%d %s", g.Slot, g.Kind)
		}
		out.WriteString(" " + g.words())
	}
	out.WriteByte('\n')
	return out.String()
}

func parseGone(w []string) ([]Gone, error) {
	if len(w) < 3 {
		return nil, fmt.Errorf("%q: want slot kind [namespace/]name", strings.Join(w, " "))
	}
	s, err := strconv.ParseUint(w[0], 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%q is no slot", w[0])
	}
	var out []Gone
	for _, word := range w[2:] {
		g := Gone{Slot: slot.Slot(s), Kind: w[1]}
		namespace, name, both := strings.Cut(word, "/")
		if !both {
			namespace, name = "", word
		}
		var errs [2]error
		g.Namespace, errs[0] = unescape(namespace)
		g.Name, errs[1] = unescape(name)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("%q: %w", word, err)
		}
		out = append(out, g)
	}
	return out, nil
}
