package rotatest

import (
	"fmt"
	"slices"
)

// remade describes how often an object was deleted and made again under its name, and the last writes that did so.
type remade struct {
	times         int
	deleted, made write
}

// remade returns the objects that were created more than once, so they were deleted in between. Their data is lost even
// if they look the same.
func (r *record) remade() map[place]remade {
	r.mu.Lock()
	defer r.mu.Unlock()
	created, deletions, all := map[place]bool{}, map[place]write{}, map[place]remade{}
	for _, w := range r.writes {
		p := w.place()
		switch {
		case w.verb == "delete":
			deletions[p] = w // for a collection, the name is empty
		case w.created && created[p]:
			collection := p
			collection.Name = ""
			deleted := deletions[p]
			if of, ok := deletions[collection]; ok && of.at > deleted.at {
				deleted = of
			}
			all[p] = remade{all[p].times + 1, deleted, w}
		case w.created:
			created[p] = true
		}
	}
	return all
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// remadeMore describes the objects that were made again more often than with one member.
func (k *kit) remadeMore(want, got *state) (texts []string) {
	for p, again := range got.remade {
		before := want.remade[p].times
		kind, err := k.mapper.KindFor(again.made.Resource)
		if again.times <= before || err != nil || slices.Contains(k.o.Ignore, kind.GroupKind()) ||
			slices.Contains(k.o.Recreates, kind.GroupKind()) {
			continue
		}
		text := fmt.Sprintf("%s was deleted and made again %s, with one member %s: ",
			describe(kind.Kind, p.ObjectKey), times(again.times), times(before))
		if again.deleted.verb != "" {
			text += again.deleted.String() + ", and then "
		}
		texts = append(texts, text+again.made.String())
	}
	slices.Sort(texts)
	return texts
}

// generated counts the created objects with generated names, by generateName.
func (r *record) generated() map[place]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := map[place]int{}
	for _, w := range r.writes {
		if w.created && w.generateName != "" {
			p := w.place()
			p.Name = w.generateName
			number[p]++
		}
	}
	return number
}

// noteGenerated adds a note about objects with generated names that were made more often than with one member. The
// surplus objects are gone, which may be right: the operator noticed that it had made two. Or it deleted the wrong one.
func (r *run) noteGenerated() {
	var texts []string
	for p, n := range r.record.generated() {
		if before := r.kit.generated[p]; n > before {
			texts = append(texts, fmt.Sprintf("of %s %s<generated> %d were made, with one member %d, and some deleted: make "+
				"sure that the right ones stay", p.Resource, p.ObjectKey, n, before))
		}
	}
	slices.Sort(texts)
	for _, text := range texts {
		r.notef("%s", text)
	}
}
