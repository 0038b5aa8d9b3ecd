package planner

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// The first three candidates that are not held dead plan (rule R3).
func TestR03WhoPlans(t *testing.T) {
	// The hashes of their IDs put members in the order e, d, b, c, a.
	members := func(formats string, leaving string) (all []table.Member) {
		for i := range formats {
			id := string("abcde"[i])
			all = append(all, table.Member{ID: id, MaxFormat: int(formats[i] - '0'), Leaving: strings.Contains(leaving, id)})
		}
		return all
	}
	for _, c := range []struct {
		name      string
		members   []table.Member
		dead      string
		shortlist string
		planners  string
	}{
		{"the first three", members("22222", ""), "", "edb", "edb"},
		{"the next for one held dead", members("22222", ""), "d", "edbc", "ebc"},
		{"fewer than three", members("22", ""), "", "ba", "ba"},
		{"all but one held dead", members("22222", ""), "bcde", "edbca", "a"},
		{"not those that leave", members("22222", "de"), "", "bca", "bca"},
		{"those of the newest format", members("21211", ""), "", "ca", "ca"},
		{"still watched while one of them is held dead", members("21211", ""), "a", "ca", "c"},
		{"those of older formats once all of these are", members("21211", ""), "ac", "edb", "edb"},
		{"all held dead", members("22", ""), "ab", "ba", ""},
		{"nobody", nil, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dead := func(id string) bool { return strings.Contains(c.dead, id) }
			found := candidatesOf("1", c.members)
			shortlist := found.shortlist(dead)
			if got := strings.Join(shortlist, ""); got != c.shortlist {
				t.Errorf("shortlist %q, want %q", got, c.shortlist)
			}
			for _, m := range c.members {
				if dead(m.ID) {
					continue
				}
				if rank, want := rankOf(m.ID, shortlist, dead), strings.Index(c.planners, m.ID); rank != want {
					t.Errorf("%s has rank %d, want %d", m.ID, rank, want)
				}
			}
		})
	}
}

// By default the planners write at once, after 250 ms and after 500 ms.
func TestR03HeadStart(t *testing.T) {
	for rank, want := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond} {
		if got := headStart(rank, 2*time.Second); got != want {
			t.Errorf("rank %d waits %v, want %v", rank, got, want)
		}
	}
}

// Members that are no planners wait for a dead one to be expelled for 1.5 to 2.44 leases, each for another time.
func TestR03Patience(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		p := patience("web-"+strconv.Itoa(i), 16*time.Second)
		if p < 24*time.Second || p > 39*time.Second {
			t.Errorf("patience %v of a lease of 16 s", p)
		}
		seen[p] = true
	}
	if len(seen) < 12 {
		t.Errorf("100 members wait for %d different times", len(seen))
	}
}
