package keeper

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A nameSet does what a map does.
func TestNameSetSameAsMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s nameSet
		want := map[string]bool{} // seen
		names := rapid.SliceOfNDistinct(rapid.StringN(0, 40, 80), 1, 60, rapid.ID).Draw(t, "names")
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			_, have := want[name]
			switch rapid.IntRange(0, 20).Draw(t, "do") {
			case 0:
				s.Clear()
				for n := range want {
					want[n] = false
				}
			case 1:
				var got, gone []string
				s.Sweep(func(name []byte) { got = append(got, string(name)) })
				for n, seen := range want {
					if !seen {
						gone = append(gone, n)
						delete(want, n)
					}
				}
				slices.Sort(got)
				slices.Sort(gone)
				if !slices.Equal(got, gone) {
					t.Fatalf("gone: %q, want %q", got, gone)
				}
			case 2, 3, 4, 5:
				if s.See([]byte(name)) != have {
					t.Fatalf("see %q: want %t", name, have)
				}
				if have {
					want[name] = true
				}
			case 6, 7, 8, 9, 10, 11:
				s.Remove([]byte(name))
				delete(want, name)
			default:
				s.Add([]byte(name))
				want[name] = true
			}
			if s.Len() != len(want) {
				t.Fatalf("%d names, want %d", s.Len(), len(want))
			}
		}
	})
}

// Memory, in bytes for each name beside its own. The heap says the same as Bytes.
func TestNameSetMemory(t *testing.T) {
	for _, count := range []int{100, 1000, 3000, 50_000, 97_000} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var s nameSet
		text := 0
		for i := range count {
			name := fmt.Appendf(nil, "website-%08d", i)
			text += len(name)
			s.Add(name)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		more := float64(s.Bytes()-text) / float64(count)
		heap := float64(int(after.HeapAlloc)-int(before.HeapAlloc)-text) / float64(count)
		t.Logf("%d names of %d bytes: %.1f bytes more for each, %.1f by the heap", count, text/count, more, heap)
		if more > 16 || count > 10_000 && heap > 16 {
			t.Errorf("%d names: %.1f bytes more for each, %.1f by the heap; want 16 at most", count, more, heap)
		}
		runtime.KeepAlive(s)
	}
}

// What was removed gives its memory back.
func TestNameSetChurn(t *testing.T) {
	var s nameSet
	for i := range 200_000 {
		s.Add(fmt.Appendf(nil, "pod-%d", i))
		s.Remove(fmt.Appendf(nil, "pod-%d", i-500))
	}
	if s.Len() != 500 || s.Bytes() > 40*500 {
		t.Errorf("%d names take %d bytes", s.Len(), s.Bytes())
	}
	s.Clear()
	s.Sweep(func([]byte) {})
	if s.Len() != 0 || s.Bytes() > 100 {
		t.Errorf("%d names take %d bytes", s.Len(), s.Bytes())
	}
}
