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

// part is a selection of a kind's objects by the informers of some members.
type part struct {
	selections []sharding.Selection
	// members are the members with this selection. open is the union of their open slots.
	members []string
	open    slot.Set
	// reported is true if the members reported the selection, false if it comes from the flags.
	reported bool
}

// ofMembers drops reports of former members.
func ofMembers(t *table.Table, reports []*coverage.Report) []*coverage.Report {
	return slices.DeleteFunc(slices.Clone(reports), func(r *coverage.Report) bool {
		_, member := t.Member(r.Member)
		return !member
	})
}

// partsOf returns the members' selections of a kind. usual applies to members that do not report one.
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

// String describes the part. It is empty for all objects.
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

// selectedParts maps a description of a partial selection to the kinds that were compared with it.
type selectedParts map[string][]string

// add adds the reported parts of a kind. If members differ, the description names them.
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
		out = append(out, fmt.Sprintf("compared only the objects of %s that the members' informers select: %s",
			strings.Join((*s)[text], ", "), text))
	}
	return out
}
