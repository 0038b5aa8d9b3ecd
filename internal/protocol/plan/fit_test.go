package plan

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/slot"
)

// No member gets more than fits while another has room, no slot waits while a member has room, and no slot leaves an
// owner that stays because of memory.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		receives := []string{"a", "b", "c"}
		stays := map[string]bool{"a": true, "b": true, "c": true, "d": true} // d receives nothing; e is dead
		in := FitInput{
			Receives: receives, Stays: func(id string) bool { return stays[id] }, Room: map[string]int{},
			Instead: func(s int, id string) bool { return s%5 != 0 || id != "c" },
		}
		for range 20 {
			owner := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(t, "owner")
			target := rapid.SampledFrom(receives).Draw(t, "target")
			if stays[owner] && rapid.Bool().Draw(t, "stays") {
				target = owner
			}
			in.Owners, in.Target = append(in.Owners, owner), append(in.Target, target)
		}
		for _, id := range receives {
			if rapid.Bool().Draw(t, "limited") {
				in.Room[id] = rapid.IntRange(0, 20).Draw(t, "room")
			}
		}
		owners, waits := Fit(in)
		left := map[string]int{"a": 99, "b": 99, "c": 99}
		for id, n := range in.Room {
			left[id] = n
		}
		for s, id := range owners {
			if id != in.Owners[s] && id != "" {
				left[id]--
			}
		}
		for id, n := range left {
			if n < 0 {
				t.Errorf("%s gets %d slots more than fit", id, -n)
			}
		}
		for s, id := range owners {
			switch {
			case stays[in.Owners[s]] && id != in.Owners[s] && id != in.Target[s]:
				t.Errorf("slot %d leaves %s for %q, and the target is %s", s, in.Owners[s], id, in.Target[s])
			case (id == "") != waits.Has(slot.Slot(s)):
				t.Errorf("slot %d has owner %q, and %v wait", s, id, waits)
			}
			for _, other := range receives {
				if id == "" && left[other] > 0 && in.Instead(s, other) {
					t.Errorf("slot %d has no owner, and %s has room", s, other)
				}
			}
			if id == in.Owners[s] && id != in.Target[s] && left[in.Target[s]] > 0 {
				t.Errorf("slot %d stays with %s, and %s has room", s, id, in.Target[s])
			}
		}
	})
}
