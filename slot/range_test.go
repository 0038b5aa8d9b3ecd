package slot_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/slot"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]slot.Range{
		"0": {First: 0, Last: 0}, "4095": {First: 4095, Last: 4095}, "0-4607": {First: 0, Last: 4607}, "3-17": {First: 3, Last: 17},
	} {
		if got, err := slot.ParseRange(text); err != nil || got != want {
			t.Errorf("ParseRange(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "-", "1-", "-1", "3-3", "17-3", "01", "1-02", "+1", "4608", "0-4608", "65536", "1-2-3", " 1", "1 ", "a", "１"} {
		if got, err := slot.ParseRange(bad); err == nil {
			t.Errorf("ParseRange(%q) = %v, want an error", bad, got)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"0", "3-17", "0-4095", "3-3", "-", "99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := slot.ParseRange(text)
		if err != nil {
			return
		}
		if r.String() != text || r.Len() < 1 || !r.Contains(r.First) || !r.Contains(r.Last) || r.Last >= slot.MaxCount+slot.MaxDuties {
			t.Errorf("ParseRange(%q) = %+v, which prints as %q", text, r, r)
		}
	})
}

// drawSet draws a set along with the plain map that it must behave as.
func drawSet(t *rapid.T, label string) (slot.Set, map[slot.Slot]bool) {
	var set slot.Set
	model := map[slot.Slot]bool{}
	for range rapid.IntRange(0, 8).Draw(t, label+" ranges") {
		// Few distinct slots, around the edges of the words, so that ranges meet.
		edge := rapid.SampledFrom([]int{0, 1, 62, 63, 64, 65, 127, 128, 4030, 4031, 4032, 4094, 4095})
		a, b := edge.Draw(t, label), edge.Draw(t, label)
		r := slot.Range{First: slot.Slot(min(a, b)), Last: slot.Slot(max(a, b))}
		if r.Len() > 100 {
			r.Last = r.First
		}
		set.AddRange(r)
		for s := r.First; s <= r.Last; s++ {
			model[s] = true
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, label+" removals") {
		s := slot.Slot(rapid.IntRange(0, slot.MaxCount+slot.MaxDuties-1).Draw(t, label))
		set.Remove(s)
		delete(model, s)
	}
	return set, model
}

func checkSet(t *rapid.T, what string, set slot.Set, want func(slot.Slot) bool) {
	var slots []slot.Slot
	for s := range slot.Slot(slot.MaxCount + slot.MaxDuties) {
		if want(s) != set.Has(s) {
			t.Fatalf("%s: Has(%d) = %t", what, s, set.Has(s))
		}
		if want(s) {
			slots = append(slots, s)
		}
	}
	if set.Len() != len(slots) || set.Empty() != (len(slots) == 0) || !slices.Equal(set.Slots(), slots) {
		t.Fatalf("%s: Len %d, Empty %t, Slots %v; want %v", what, set.Len(), set.Empty(), set.Slots(), slots)
	}
	ranges := set.Ranges()
	if slot.SetOf(ranges...) != set {
		t.Fatalf("%s: ranges %v do not make up %v", what, ranges, set)
	}
	for i := 1; i < len(ranges); i++ {
		if ranges[i].First <= ranges[i-1].Last+1 {
			t.Fatalf("%s: ranges %v and %v could be one", what, ranges[i-1], ranges[i])
		}
	}
}

func TestSetBehavesAsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, inA := drawSet(t, "a")
		b, inB := drawSet(t, "b")
		before := a
		checkSet(t, "a", a, func(s slot.Slot) bool { return inA[s] })
		checkSet(t, "union", a.Union(b), func(s slot.Slot) bool { return inA[s] || inB[s] })
		checkSet(t, "intersection", a.Intersect(b), func(s slot.Slot) bool { return inA[s] && inB[s] })
		checkSet(t, "difference", a.Minus(b), func(s slot.Slot) bool { return inA[s] && !inB[s] })
		if a != before {
			t.Fatal("an operation changed its operand")
		}
	})
}

func TestSetString(t *testing.T) {
	set := slot.SetOf(slot.Range{First: 3, Last: 5}, slot.Range{First: 6, Last: 6}, slot.Range{First: 9, Last: 9})
	if got := set.String(); got != "3-6,9" {
		t.Errorf("String() = %q", got)
	}
	if got := (slot.Set{}).String(); got != "" {
		t.Errorf("String() of nothing = %q", got)
	}
}

func TestParseSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, _ := drawSet(t, "set")
		if got, err := slot.ParseSet(set.String()); err != nil || got != set {
			t.Fatalf("ParseSet(%q) = %v, %v", set, got, err)
		}
	})
	for _, bad := range []string{",", "1,", "2,1", "1,2", "1-3,3", "1, 3", "x"} {
		if got, err := slot.ParseSet(bad); err == nil {
			t.Errorf("ParseSet(%q) = %v, want an error", bad, got)
		}
	}
}
