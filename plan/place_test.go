package plan

import (
	"strings"
	"testing"
)

// How free slots are placed so that members get few runs. A letter is a slot's owner, a dot a slot without; all members
// weigh the same. Each case was placed otherwise by some mutation of place.go that no property of plans forbids.
func TestPlace(t *testing.T) {
	for _, c := range []struct{ members, owners, want, why string }{
		{"abc", "...b...c", "aaabbbcc", "b and c fill the gap between them, which is gone then, before b extends the other one"},
		{"abcd", "aaaad..c", "aabbddcc", "d and c can just fill the gap between them"},
		{"abc", "a..c..", "aaccbb", "c fills a gap to its left or right whole; a takes nothing of it"},
		{"abc", "..c.cc.b", "aacaccbb", "a second piece goes to who has fewer runs: none of c's"},
		{"abc", "..a.aabb", "ccabaabb", "a piece goes to who has no run yet, not to who has got one before"},
		{"abcd", "..cac.", "bbcacd", "the largest gap first, to the first of those that take most"},
		{"abc", ".aa.", "baac", "of equal gaps the first, of equal takers the first"},
	} {
		in := Input{}
		for _, id := range strings.Split(c.members, "") {
			in.Members = append(in.Members, Member{ID: id, Weight: 1, Receives: true})
		}
		for _, owner := range strings.Split(c.owners, "") {
			in.Owners = append(in.Owners, strings.TrimPrefix(owner, "."))
		}
		if got := strings.Join(Assign(in), ""); got != c.want {
			t.Errorf("%s becomes %s, want %s: %s", c.owners, got, c.want, c.why)
		}
	}
}
