package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/coverage"
)

// Shadow is what the members of a shadow would own if they worked.
type Shadow struct {
	// Of is the name of the rota without the shadow suffix.
	Of string `json:"of"`
	// Kinds are sorted by name.
	Kinds []ShadowKind `json:"kinds"`
}

// ShadowKind is a kind that would be sharded.
type ShadowKind struct {
	Kind string `json:"kind"`
	// Objects is the number of objects, from the members' last lists.
	Objects int `json:"objects"`
	// Labels is how many labels delivery SlotLabel would write once.
	Labels int `json:"labels"`
	// Changes is how many objects changed per minute between the last two lists, or nil if unknown. Several changes of an
	// object between two lists count once.
	Changes *float64 `json:"changesPerMinute,omitempty"`
	// Members are the members that have reported, by ID.
	Members []ShadowShare `json:"members"`
}

// ShadowShare is the part of a kind that a member would own.
type ShadowShare struct {
	Member  string `json:"member"`
	Objects int    `json:"objects"`
	// Share is the part of all objects, from 0 to 1. Memory for caches and the number of reconciles are proportional to
	// it.
	Share float64 `json:"share"`
}

// ShadowText explains a shadow to users.
const ShadowText = "SHADOW: the members do no work, and the operator runs as it does without a rota. This is " +
	"what each member would own"

// shadowOf combines the reports of a shadow.
func shadowOf(of string, reports map[string]*coverage.Report) *Shadow {
	out := &Shadow{Of: of, Kinds: []ShadowKind{}}
	changes := map[string]float64{}
	counted := map[string]int{} // members that report changes
	for id, r := range reports {
		for _, w := range r.Would {
			kind := w.Kind.String()
			i := slices.IndexFunc(out.Kinds, func(k ShadowKind) bool { return k.Kind == kind })
			if i < 0 {
				i = len(out.Kinds)
				out.Kinds = append(out.Kinds, ShadowKind{Kind: kind})
			}
			k := &out.Kinds[i]
			k.Objects, k.Labels = k.Objects+w.Objects, k.Labels+w.Unlabelled
			k.Members = append(k.Members, ShadowShare{Member: id, Objects: w.Objects})
			if w.Over > 0 {
				changes[kind] += float64(w.Changed) * float64(time.Minute) / float64(w.Over)
				counted[kind]++
			}
		}
	}
	slices.SortFunc(out.Kinds, func(a, b ShadowKind) int { return strings.Compare(a.Kind, b.Kind) })
	for i := range out.Kinds {
		k := &out.Kinds[i]
		slices.SortFunc(k.Members, func(a, b ShadowShare) int { return strings.Compare(a.Member, b.Member) })
		for j := range k.Members {
			if k.Objects > 0 {
				k.Members[j].Share = float64(k.Members[j].Objects) / float64(k.Objects)
			}
		}
		if rate := changes[k.Kind]; counted[k.Kind] == len(k.Members) {
			k.Changes = &rate
		}
	}
	return out
}

// judgeShadow determines the member that would work on an object.
func (r *Rota) judgeShadow(w *Who, about subject, p place) {
	w.Works = WorksNo
	owner := ""
	if p.nowhere == "" {
		owner = r.Table.At(p.slot).Owner
	}
	switch {
	case p.nowhere != "":
		w.no("%s", p.nowhere)
	case owner == "":
		w.no("slot %d has no owner yet", p.slot)
	default:
		w.Member, w.Since = owner, r.since(r.Table.At(p.slot))
		for _, m := range r.Members {
			if m.ID == owner {
				w.Pod, w.State = m.Pod, m.State
			}
		}
		w.no("the rota is a shadow, whose members do no work")
		w.Answer = fmt.Sprintf("SHADOW: %s would work on %s, but the operator without the rota does", owner, about)
		return
	}
	w.Answer = "SHADOW: no member would work on " + about.String() + ": " + w.Reasons[len(w.Reasons)-1]
}
