package rotatest

import (
	"fmt"
	"slices"
)

// remade says how often an object was deleted and made again under its name, and by which writes it was last.
type remade struct {
	times         int
	deleted, made write
}

// remade returns the objects that were created more than once, so that they were deleted in between: what was in them is
// lost, even if they are as they were.
func (r *record) remade() map[place]remade {
	r.mu.Lock()
	defer r.mu.Unlock()
	created, deletions, all := map[place]bool{}, map[place]write{}, map[place]remade{}
	for _, w := range r.writes {
		p := w.place()
		switch {
		case w.verb == "delete":
			deletions[p] = w // of a collection, the name is empty
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

// remadeMore says which objects were made again more often than with one member.
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
