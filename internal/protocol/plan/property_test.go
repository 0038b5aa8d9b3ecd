package plan

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/slot"
)

// history is a rota whose members come, go, crash and roll at random.
type history struct {
	Input
	joined int
	build  int // of the latest joiner
	builds map[string]int
}

// TestHistories walks random histories and asks the oracle about every step (rules R9 and R17).
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{builds: map[string]int{}}
		h.Owners = make([]string, 1<<rapid.IntRange(0, 8).Draw(t, "log2 slots"))
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				if len(h.Members) < 24 {
					h.join(rapid.IntRange(1, 4).Draw(t, "weight"), rapid.IntRange(0, 4).Draw(t, "waits") > 0)
				}
			},
			"join next build": func(t *rapid.T) {
				h.build++
				h.join(1, rapid.Bool().Draw(t, "receives"))
			},
			"leave": func(t *rapid.T) { h.member(t).Leaves = true },
			"crash": func(t *rapid.T) { h.remove(h.member(t).ID) },
			"remove leaver": func(t *rapid.T) {
				i := slices.IndexFunc(h.Members, func(m Member) bool { return m.Leaves })
				if i < 0 {
					t.Skip("nobody leaves")
				}
				h.remove(h.Members[i].ID)
			},
			"leaver plans": func(t *rapid.T) {
				m := h.member(t)
				m.Leaves = true
				h.Only = m.ID
				h.step(t)
				h.Only = ""
			},
			"donor plans": func(t *rapid.T) {
				h.Only = h.member(t).ID
				h.step(t)
				h.Only = ""
			},
			"receive": func(t *rapid.T) { m := h.member(t); m.Receives = !m.Receives },
			"weigh":   func(t *rapid.T) { h.member(t).Weight = rapid.IntRange(1, 100).Draw(t, "weight") },
			"rollout": func(t *rapid.T) { h.Tolerant = rapid.Bool().Draw(t, "tolerant") },
			"orphan":  func(t *rapid.T) { h.Owners[rapid.IntRange(0, len(h.Owners)-1).Draw(t, "slot")] = "" },
			"moves end": func(*rapid.T) {
				h.Moving = slot.Set{}
			},
			"": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "plan") > 0 { // sometimes several things happen before the next plan
					h.step(t)
				}
			},
		})
	})
}

func (h *history) member(t *rapid.T) *Member {
	if len(h.Members) == 0 {
		t.Skip("no members")
	}
	return &h.Members[rapid.IntRange(0, len(h.Members)-1).Draw(t, "member")]
}

func (h *history) join(weight int, receives bool) {
	h.joined++
	id := fmt.Sprintf("m-%d-%d", h.joined*7919%100, h.joined) // IDs not in order of joining
	h.builds[id] = h.build
	h.Members = append(h.Members, Member{ID: id, Weight: weight, Receives: receives})
}

func (h *history) remove(id string) {
	h.Members = slices.DeleteFunc(h.Members, func(m Member) bool { return m.ID == id })
}

// step plans, asks the oracle, and carries the plan out; every third moved slot stays on its way.
func (h *history) step(t *rapid.T) {
	for i := range h.Members {
		h.Members[i].Prefer = h.builds[h.Members[i].ID] == h.build
	}
	out := Assign(h.Input)
	check(t, h.Input, out)
	for s := range out {
		if out[s] != h.Owners[s] && s%3 == 0 {
			h.Moving.Add(slot.Slot(s))
		}
	}
	h.Owners = out
}

// TestEqualMembers: with equal weights a join moves only to the joiner, and nobody but the one that goes loses anything
// (rule R17).
func TestEqualMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Owners: make([]string, 1<<rapid.IntRange(3, 10).Draw(t, "log2 slots"))}
		joined := 0
		join := func() string {
			joined++
			id := fmt.Sprintf("m-%d-%d", joined*7919%100, joined)
			in.Members = append(in.Members, Member{ID: id, Weight: 1, Receives: true})
			return id
		}
		step := func(t *rapid.T, gone, came string) {
			out := Assign(in)
			check(t, in, out)
			for s, id := range in.Owners {
				if id != out[s] && id != "" && id != gone && out[s] != came {
					t.Fatalf("slot %d moved from %s to %s while %q went and %q came", s, id, out[s], gone, came)
				}
			}
			in.Owners = out
		}
		join()
		step(t, "", "")
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) { step(t, "", join()) },
			"crash": func(t *rapid.T) {
				if len(in.Members) == 1 {
					t.Skip("the last")
				}
				i := rapid.IntRange(0, len(in.Members)-1).Draw(t, "member")
				gone := in.Members[i].ID
				in.Members = slices.Delete(in.Members, i, i+1)
				step(t, gone, "")
			},
		})
	})
}
