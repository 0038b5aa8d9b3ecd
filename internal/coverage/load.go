package coverage

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/slot"
)

// Load is how many workers the keys of some slots keep busy in total.
type Load struct {
	Slots   slot.Range
	Workers float64
}

// LoadsOf returns the loads in slot order, without those below 0.001. The result is never nil.
func LoadsOf(by map[slot.Slot]float64) []Load {
	out := []Load{}
	for s, workers := range by {
		if thousandths(workers) > 0 {
			out = append(out, Load{slot.Range{First: s, Last: s}, workers})
		}
	}
	slices.SortFunc(out, func(a, b Load) int { return cmp.Compare(a.Slots.First, b.Slots.First) })
	return out
}

// Load returns how many workers the keys of all slots keep busy; ok is false if that is unknown.
func (r *Report) Load() (workers float64, ok bool) {
	for _, l := range r.Loads {
		workers += l.Workers
	}
	return workers, r.Loads != nil
}

// Alike reports whether two reports differ at most in loads and trial, which change all the time and can wait. An
// absent report is like no other.
func Alike(a, b map[string]string) bool {
	but := func(data map[string]string) map[string]string {
		out := maps.Clone(data)
		delete(out, fieldLoads)
		delete(out, fieldHottest)
		delete(out, fieldTrial)
		return out
	}
	return a != nil && b != nil && maps.Equal(but(a), but(b))
}

func thousandths(workers float64) int64 { return int64(math.Round(1000 * workers)) }

// encodeLoads writes a line for each slot, or for groups of 2, 4, 8 or more neighboring slots.
func encodeLoads(loads []Load) string {
	for slots := 1; ; slots *= 2 {
		var out strings.Builder
		for i := 0; i < len(loads); {
			sum := loads[i]
			group := func(l Load) slot.Slot { return firstOf(l.Slots.First, slots) }
			j := i + 1
			for ; j < len(loads) && group(loads[j]) == group(loads[i]); j++ {
				sum.Slots.Last = loads[j].Slots.Last
				sum.Workers += loads[j].Workers
			}
			fmt.Fprintf(&out, "%s %d\n", sum.Slots, thousandths(sum.Workers))
			i = j
		}
		if out.Len() <= maxLoads || slots >= slot.MaxCount {
			return out.String()
		}
	}
}

func (r *Report) decodeLoads(text string) error {
	r.Loads = []Load{}
	next := 0
	for i, line := range lines(text) {
		words := strings.Fields(line)
		if len(words) != 2 {
			return r.lineError(fieldLoads, i, line)
		}
		slots, err := slot.ParseRange(words[0])
		n, numErr := strconv.ParseUint(words[1], 10, 31)
		if err != nil || numErr != nil || int(slots.First) < next {
			return r.lineError(fieldLoads, i, line)
		}
		next = int(slots.Last) + 1
		r.Loads = append(r.Loads, Load{slots, float64(n) / 1000})
	}
	return nil
}
