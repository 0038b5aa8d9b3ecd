package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// part is what some members' informers ask for of a kind.
type part struct {
	selections []sharding.Selection
	// members are those, open the slots that they have open.
	members []string
	open    slot.Set
	// reported: they say so themselves. Otherwise it is taken from the flags.
	reported bool
}

// ofMembers leaves out what those report that are not members any more.
func ofMembers(t *table.Table, reports []*coverage.Report) []*coverage.Report {
	return slices.DeleteFunc(slices.Clone(reports), func(r *coverage.Report) bool {
		_, member := t.Member(r.Member)
		return !member
	})
}

// partsOf returns what the members ask for of a kind. Members that do not report it are taken to ask for the usual.
func partsOf(kind schema.GroupKind, reports []*coverage.Report, usual []sharding.Selection) []*part {
	parts := map[string]*part{}
	for _, r := range reports {
		if _, reads := r.Digests[kind]; !reads {
			continue
		}
		selections, reported := r.Selections[kind]
		if !reported {
			selections = usual
		}
		by := fmt.Sprintf("%t %q", reported, selections)
		p := parts[by]
		if p == nil {
			p = &part{selections: selections, reported: reported}
			parts[by] = p
		}
		p.members = append(p.members, r.Member)
		for _, run := range r.Open.Ranges() {
			p.open.AddRange(run)
		}
	}
	var out []*part
	for _, by := range slices.Sorted(maps.Keys(parts)) {
		slices.Sort(parts[by].members)
		out = append(out, parts[by])
	}
	return out
}

// overlap reports whether an object may match several selections.
func overlap(selections []sharding.Selection) bool {
	namespaces := map[string]bool{}
	for _, s := range selections {
		namespaces[s.Namespace] = true
	}
	return len(selections) > 1 && (namespaces[""] || len(namespaces) < len(selections))
}

// String says what the part is; empty: it is all objects.
func (p *part) String() string {
	namespaces := map[sharding.Selectors][]string{}
	var order []sharding.Selectors
	for _, s := range p.selections {
		if _, known := namespaces[s.Selectors]; !known {
			order = append(order, s.Selectors)
		}
		namespaces[s.Selectors] = append(namespaces[s.Selectors], s.Namespace)
	}
	var out []string
	for _, by := range order {
		var words []string
		if names := namespaces[by]; !slices.Contains(names, "") {
			words = append(words, "in namespace "+strings.Join(names, ", "))
		}
		if by.Label != "" {
			words = append(words, "with label selector "+by.Label)
		}
		if by.Field != "" {
			words = append(words, "with field selector "+by.Field)
		}
		if len(words) == 0 {
			return ""
		}
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, "; ")
}

// selectedParts are the kinds of which only a part was compared, by the text that says which.
type selectedParts map[string][]string

// add takes in the parts of a kind that members report. If members differ, the text names them.
func (s *selectedParts) add(kind schema.GroupKind, parts []*part) {
	for _, p := range parts {
		text := p.String()
		if text == "" || !p.reported {
			continue
		}
		if len(parts) > 1 {
			text += " (" + strings.Join(p.members, ", ") + ")"
		}
		if *s == nil {
			*s = selectedParts{}
		}
		(*s)[text] = append((*s)[text], kind.String())
	}
}

func (s *selectedParts) texts() []string {
	var out []string
	for _, text := range slices.Sorted(maps.Keys(*s)) {
		out = append(out, fmt.Sprintf("compared only what the members' informers select of %s: %s",
			strings.Join((*s)[text], ", "), text))
	}
	return out
}
