package keeper

import (
	"strconv"
	"testing"
	"time"
)

// Deletions are remembered by number and time, and an object that was created again is forgotten.
func TestRecalled(t *testing.T) {
	const most = 100
	r := newRecalled[string](time.Minute, most)
	for i := range 2*most + 10 {
		r.add(strconv.Itoa(i), deletion{slot: 1, version: "5", at: 1})
	}
	if len(r.by) != most || len(r.order) > 2*most {
		t.Errorf("%d deletions in %d places are remembered, want %d", len(r.by), len(r.order), most)
	}
	last := strconv.Itoa(2*most + 9)
	for _, c := range []struct {
		version    string
		remembered bool
	}{{"4", true}, {"6", false}} {
		r.add(last, deletion{slot: 1, version: "5", at: 1})
		if r.exists(last, c.version); (r.by[last].version != "") != c.remembered {
			t.Errorf("deleted at 5, exists at %s: remembered is %t", c.version, !c.remembered)
		}
	}
	r.trim(time.Minute)
	if len(r.by) != most-1 {
		t.Errorf("%d deletions are remembered, want %d", len(r.by), most-1)
	}
	if r.trim(time.Minute + 1); len(r.by) != 0 || len(r.order) != 0 {
		t.Errorf("%d deletions in %d places are remembered after a long time", len(r.by), len(r.order))
	}
}

// An object that is deleted again and again is remembered, and takes the place of no other.
func TestRecalledOften(t *testing.T) {
	const most = 10
	r := newRecalled[string](time.Minute, most)
	r.add("another", deletion{slot: 1, at: 1})
	for range 100 * most {
		r.add("often", deletion{slot: 1, at: 1})
	}
	if len(r.order) > 2*most {
		t.Errorf("%d places for two deletions", len(r.order))
	}
	for i := range most - 1 {
		r.add(strconv.Itoa(i), deletion{slot: 1, at: 1})
	}
	if got := r.take(all, 1); len(got) != most || got["often"].at == 0 || got["another"].at != 0 {
		t.Errorf("%d deletions are remembered, want %d, the oldest dropped: %v", len(got), most, got)
	}
	if len(r.by) != 0 {
		t.Errorf("%v are remembered still", r.by)
	}
}
