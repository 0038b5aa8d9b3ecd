package plan

import (
	"strconv"
	"strings"
	"testing"

	"github.com/rota-dev/rota/slot"
)

// example is an Input in few letters. In owners a letter is a slot's owner, a dot a slot without, a capital letter a
// slot that is on its way to that owner. In members a digit is the weight, - leaves, ! does not receive, + is
// preferred; ~ is Tolerant.
func example(members, owners string) Input {
	in := Input{}
	for _, c := range members {
		last := len(in.Members) - 1
		switch c {
		case '~':
			in.Tolerant = true
		case '-':
			in.Members[last].Leaves, in.Members[last].Receives = true, false
		case '!':
			in.Members[last].Receives = false
		case '+':
			in.Members[last].Prefer = true
		default:
			if weight, err := strconv.Atoi(string(c)); err == nil {
				in.Members[last].Weight = weight
			} else {
				in.Members = append(in.Members, Member{ID: string(c), Weight: 1, Receives: true})
			}
		}
	}
	for s, c := range owners {
		id := strings.ToLower(string(c))
		if id != string(c) {
			in.Moving.Add(slot.Slot(s))
		}
		in.Owners = append(in.Owners, strings.TrimPrefix(id, "."))
	}
	return in
}

// What the properties of plans leave open: where free slots go, so that members get few runs, who gives up which slot,
// and who gets the odd one. Each case came out otherwise by some mutation that they did not notice.
func TestExamples(t *testing.T) {
	for _, c := range []struct{ members, owners, want, why string }{
		{"abc", "...b...c", "aaabbbcc", "b and c fill the gap between them, which is gone then, before b extends the other one"},
		{"abcd", "aaaad..c", "aabbddcc", "d and c can just fill the gap between them"},
		{"abc", "a..c..", "aaccbb", "c fills a gap beside it whole; a takes nothing of it"},
		{"abc", "..c.cc.b", "aacaccbb", "a second piece goes to who has fewer runs: none of c's"},
		{"abc", "..a.aabb", "ccabaabb", "a piece goes to who has no run yet, not to who has got one before"},
		{"abcd", "..cac.", "bbcacd", "the largest gap first, to the first of those that take most"},
		{"abc", ".aa.", "baac", "of equal gaps the first, of equal takers the first"},
		{"abc3", "aC.", "acc", "of 0.6, 0.6 and 1.8 slots the larger remainder is rounded up"},
		{"a3bc2!", "cCab", "ccaa", "who has more than its share keeps the odd slot, first of all who would not get it back"},
		{"~ab3+c+", "c.aa..a", "cbaabbb", "a, which is not preferred, keeps what it has up to its cap"},
		{"~ab+", ".Bb", "abb", "b, which is preferred, keeps what it has, and a gets what is free"},
		{"~ab+c2+d+", "BbbBB", "bcdbb", "b gives what is not on its way to it"},
		{"abcd", "dadda", "bcdda", "a and d give slots that lie side by side"},
		{"ab", "bbbA", "bbaa", "b gives the slot beside a's"},
		{"abcde", "bebbbc", "aedbbc", "b gives the slots beside e's, and no others"},
		{"ab", "Aaa", "aab", "a slot at the end is given up: the boundary after the last run counts"},
		{"a!b2-cde", "adDdaaaCCaccd", "adddaaacceece", "of clusters that are as good, the one whose donors have fewer other chances"},
	} {
		if got := strings.Join(Assign(example(c.members, c.owners)), ""); got != c.want {
			t.Errorf("%s of %s becomes %s, want %s: %s", c.owners, c.members, got, c.want, c.why)
		}
	}
}
