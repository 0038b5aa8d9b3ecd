package slot

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Range is a run of slots from First to Last, both inclusive. It prints as "3" or "3-17".
type Range struct{ First, Last Slot }

// Len returns the number of slots of the range.
func (r Range) Len() int { return int(r.Last) - int(r.First) + 1 }

// Contains reports whether s is in the range.
func (r Range) Contains(s Slot) bool { return r.First <= s && s <= r.Last }

// String returns the form that ParseRange parses.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// ParseRange parses "3" or "3-17". The form is canonical: it rejects "3-3" and leading zeros.
func ParseRange(text string) (Range, error) {
	first, last, isRun := strings.Cut(text, "-")
	a, err := parseSlot(first)
	if err != nil {
		return Range{}, fmt.Errorf("slot range %q: %w", text, err)
	}
	if !isRun {
		return Range{a, a}, nil
	}
	b, err := parseSlot(last)
	if err != nil {
		return Range{}, fmt.Errorf("slot range %q: %w", text, err)
	}
	if b <= a {
		return Range{}, fmt.Errorf("slot range %q: the last slot must be above the first", text)
	}
	return Range{a, b}, nil
}

func parseSlot(text string) (Slot, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n >= limit || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("slot %q: must be a number from 0 to %d", text, limit-1)
	}
	return Slot(n), nil
}

// Set is a set of slots, stored as a bit set. The zero value is empty. A copy is independent of the original.
type Set struct{ words [limit / 64]uint64 }

// SetOf returns the set of all slots in the given ranges.
func SetOf(ranges ...Range) Set {
	var set Set
	for _, r := range ranges {
		set.AddRange(r)
	}
	return set
}

// All returns all hash slots. It does not include duty slots. c must be valid.
func (c Count) All() Set { return SetOf(Range{First: 0, Last: Slot(c - 1)}) }

// Add adds s to the set. s must be below MaxCount + MaxDuties.
func (set *Set) Add(s Slot) { set.words[s/64] |= 1 << (s % 64) }

// AddRange adds the slots of r to the set.
func (set *Set) AddRange(r Range) {
	for s := int(r.First); s <= int(r.Last); s++ {
		set.Add(Slot(s))
	}
}

// Remove removes s from the set.
func (set *Set) Remove(s Slot) { set.words[s/64] &^= 1 << (s % 64) }

// Has reports whether s is in the set.
func (set *Set) Has(s Slot) bool { return set.words[s/64]&(1<<(s%64)) != 0 }

// Len returns the number of slots in the set.
func (set *Set) Len() int {
	n := 0
	for _, w := range set.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether the set is empty.
func (set *Set) Empty() bool { return set.words == [limit / 64]uint64{} }

// Union returns the slots in either set.
func (set Set) Union(other Set) Set {
	for i := range set.words {
		set.words[i] |= other.words[i]
	}
	return set
}

// Intersect returns the slots in both sets.
func (set Set) Intersect(other Set) Set {
	for i := range set.words {
		set.words[i] &= other.words[i]
	}
	return set
}

// Minus returns the slots of set that are not in other.
func (set Set) Minus(other Set) Set {
	for i := range set.words {
		set.words[i] &^= other.words[i]
	}
	return set
}

// Slots returns the slots in rising order.
func (set *Set) Slots() []Slot {
	n := set.Len()
	if n == 0 {
		return nil
	}
	out := make([]Slot, 0, n)
	for i, w := range set.words {
		for ; w != 0; w &= w - 1 {
			out = append(out, Slot(i*64+bits.TrailingZeros64(w)))
		}
	}
	return out
}

// Ranges returns the minimal list of ranges that make up the set, in rising order.
func (set *Set) Ranges() []Range {
	var out []Range
	for i, w := range set.words {
		for w != 0 {
			first := bits.TrailingZeros64(w)
			length := bits.TrailingZeros64(^(w >> first)) // 64 if all the rest is in the set
			r := Range{Slot(i*64 + first), Slot(i*64 + first + length - 1)}
			if n := len(out); n > 0 && out[n-1].Last+1 == r.First {
				out[n-1].Last = r.Last
			} else {
				out = append(out, r)
			}
			w &^= (1<<length - 1) << first
		}
	}
	return slices.Clip(out)
}

// ParseSet is the inverse of Set.String. The ranges must be in rising order, with gaps between them.
func ParseSet(text string) (Set, error) {
	var set Set
	if text == "" {
		return set, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		r, err := ParseRange(part)
		if err != nil {
			return Set{}, err
		}
		set.AddRange(r)
	}
	if set.String() != text {
		return Set{}, fmt.Errorf("slots %q: must be ranges in rising order, with gaps between them", text)
	}
	return set, nil
}

// String returns the ranges, separated by commas.
func (set Set) String() string {
	var b strings.Builder
	for i, r := range set.Ranges() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(r.String())
	}
	return b.String()
}
