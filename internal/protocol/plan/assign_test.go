package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/slot"
)

// owners reads a line of owners, one letter a slot; "." is nobody.
func owners(text string) []string {
	out := strings.Split(text, "")
	for i := range out {
		if out[i] == "." {
			out[i] = ""
		}
	}
	return out
}

func line(owners []string) string {
	var b strings.Builder
	for _, o := range owners {
		if o == "" {
			o = "."
		}
		b.WriteString(o)
	}
	return b.String()
}

func equal(ids ...string) []Member {
	var out []Member
	for _, id := range ids {
		out = append(out, Member{ID: id, Weight: 1, Receives: true})
	}
	return out
}

func TestAssign(t *testing.T) {
	waits := Member{ID: "w", Weight: 1}
	leaver := Member{ID: "z", Weight: 1, Receives: true, Leaves: true}
	for _, c := range []struct {
		name, owners, moving, want string
		members                    []Member
		only                       string
		tolerant                   bool
	}{
		{name: "R17: the first assignment gives one run to each", owners: "............", members: equal("c", "a", "b"), want: "aaaabbbbcccc"},
		{name: "R17: by weight", owners: "............", members: []Member{{ID: "a", Weight: 4, Receives: true}, {ID: "b", Weight: 2, Receives: true}}, want: "aaaaaaaabbbb"},
		{name: "R17: a join takes a run", owners: "aaaaaaaabbbb....", members: equal("a", "b"), want: "aaaaaaaabbbbbbbb"},
		{name: "R17: a joiner's slots lie side by side", owners: "aaaaaabbbbbb", members: equal("a", "b", "c"), want: "aaaaccccbbbb"},
		{name: "R17: whole runs leave a donor", owners: "aaaaabbbbaac", members: equal("a", "b", "c"), want: "caaaabbbbccc"},
		{name: "R17: a leaver's slots go to its neighbors", owners: "aaaazzzzbbbb", members: append(equal("a", "b"), leaver), want: "aaaaaabbbbbb"},
		{name: "R17: slots between two runs of one go there", owners: "aazabbzbbccccc", members: equal("a", "b", "c"), want: "aaaabbbbbccccc"},
		{name: "R17: balanced stays", owners: "abcabcabcabca", members: equal("a", "b", "c"), want: "abcabcabcabca"},
		{name: "nobody receives", owners: "aaa..zzwww", members: []Member{leaver, waits}, want: ".......www"},
		{name: "no members", owners: "aaa.", want: "...."},
		{name: "one that does not receive keeps what it has", owners: "waaaaaaaaaaa", members: append(equal("a", "b"), waits), want: "wbbbbbaaaaaa"},
		{name: "but not more than its fair share", owners: "wwwwwwwwwwww", members: append(equal("a", "b"), waits), want: "aaaabbbbwwww"},
		{name: "a waiting joiner reserves nothing", owners: "aaaaaazzzzzz", members: append(equal("a", "b"), waits, leaver), want: "aaaaaabbbbbb"},
		{name: "moves under way are left alone", owners: "aaaaaabbbbbb", moving: "****........", members: equal("a", "b", "c"), want: "aaaaccccbbbb"},
		{name: "even where that is not fair", owners: "aaaaaaaaabbb", moving: "*********...", members: equal("a", "b", "c"), want: "aaaaaaaaacbb"},
		{name: "unless their target leaves", owners: "aaaazzzzbbbb", moving: "****....****", members: append(equal("a", "b"), leaver), want: "aaaaaabbbbbb"},
		{name: "R9: a leaver plans its own moves only", owners: "aaaaazzz.yyb", members: append(equal("a", "b"), leaver, Member{ID: "y", Leaves: true}), only: "z", want: "aaaaabbb.yyb"},
		{name: "R9: during a rollout 1.25 times is fine", owners: "aaaaabbb....cccc", members: equal("a", "b", "c", "d"), tolerant: true, want: "aaaaabbbbdddcccc"},
		{name: "R9: what is beyond 1.25 times is not", owners: "aaaaaabbbbb.cccc", members: equal("a", "b", "c", "d"), tolerant: true, want: "daaaaabbbbbdcccc"},
		{
			name: "R9: a leaver hands to the latest build up to 1.25 times", owners: "aaaabbbbzzzzzzzz", tolerant: true,
			members: append(equal("a", "b"), Member{ID: "n", Weight: 1, Receives: true, Prefer: true}, leaver),
			want:    "aaaabbbbbnnnnnna",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Input{Owners: owners(c.owners), Members: c.members, Only: c.only, Tolerant: c.tolerant}
			for s := range c.moving {
				if c.moving[s] == '*' {
					in.Moving.Add(slot.Slot(s))
				}
			}
			out := Assign(in)
			check(t, in, out)
			if diff := cmp.Diff(c.want, line(out)); diff != "" {
				t.Errorf("from %s (-want +got):\n%s", c.owners, diff)
			}
		})
	}
}

// Rule R9: a rollout moves a slot about once.
func TestRollout(t *testing.T) {
	for _, c := range []struct {
		members, surge int // surge 0: the old one leaves before the new one comes
		most           float64
	}{{3, 1, 1}, {10, 1, 1}, {10, 3, 1}, {3, 0, 1.8}, {10, 0, 1.5}} {
		t.Run(fmt.Sprintf("%d members, surge %d", c.members, c.surge), func(t *testing.T) {
			in := Input{Owners: make([]string, 256)}
			for i := range c.members {
				in.Members = append(in.Members, Member{ID: fmt.Sprint("old-", i), Weight: 1, Receives: true})
			}
			in.Owners = Assign(in)
			moved := 0
			plan := func() {
				out := Assign(in)
				check(t, in, out)
				moved += changes(t, in.Owners, out)
				in.Owners = out
			}
			in.Tolerant = true
			came := 0
			join := func() { // it waits for one that leaves
				in.Members = append(in.Members, Member{ID: fmt.Sprint("new-", came), Weight: 1, Prefer: true})
				came++
				plan()
			}
			for range c.surge {
				join()
			}
			for went := range c.members {
				in.Members[0].Leaves = true // an old one: they stand first
				for i := range in.Members {
					if i <= c.members { // the joiner whose turn it is
						in.Members[i].Receives = true
					}
				}
				plan()
				in.Members = in.Members[1:]
				if went+c.surge < c.members {
					join()
				}
			}
			for i := range in.Members {
				in.Members[i].Receives, in.Members[i].Prefer = true, false
			}
			in.Tolerant = false
			plan()
			perSlot := float64(moved) / 256
			t.Logf("%.2f moves per slot", perSlot)
			if perSlot > c.most {
				t.Errorf("%.2f moves per slot, want at most %.2f", perSlot, c.most)
			}
		})
	}
}
