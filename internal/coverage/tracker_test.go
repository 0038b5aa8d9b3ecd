package coverage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// pair is a table of 4 slots: 0 and 1 are a's at epoch 5, 2 and 3 b's at the given one.
func pair(epoch uint64) *table.Table {
	t := table.New(4, slot.KeyName, 9)
	for _, id := range []string{"a", "b"} {
		t.Put(table.Member{ID: id, Pod: id, Weight: 1, MinFormat: 1, MaxFormat: 1})
	}
	t.Runs = []table.Run{{Slots: slot.Range{First: 0, Last: 1}, Owner: "a", Epoch: 5},
		{Slots: slot.Range{First: 2, Last: 3}, Owner: "b", Epoch: epoch}}
	return t
}

func opens(member string, serial uint64, open ...slot.Slot) *coverage.Report {
	r := &coverage.Report{Member: member, Serial: serial, Fold: 1, Digests: coverage.Digests{cm: {}}}
	for _, n := range open {
		r.Open.Add(n)
	}
	return r
}

// look is one look: when, at what, and how many findings count then.
type look struct {
	at      time.Duration // s
	epoch   uint64
	reports []*coverage.Report
	want    string // the findings that count, or empty
}

func TestWhatCounts(t *testing.T) {
	bounds := coverage.BoundsOf(15*time.Second, 2500*time.Millisecond)
	a := func(serial uint64) *coverage.Report { return opens("a", serial, 0, 1) }
	b := func(serial uint64) *coverage.Report { return opens("b", serial, 2, 3) }
	closed := func(serial uint64) *coverage.Report { return opens("b", serial) }
	half := func(serial uint64) *coverage.Report { return opens("b", serial, 2) }
	both := func(serial uint64) *coverage.Report { return opens("a", serial, 0, 1, 2) }
	const unowned = "slot 3: no member works on it; its owner is b"
	const doubled = "slot 2: several members work on it: a b"
	const silent = "member b does not report what it holds, so it cannot be checked: it may lack the permission to " +
		"write Leases"
	for name, looks := range map[string][]look{
		// b took the slots over at the expel, waited for the fence, opened them 2.6 s later and published that 3.4 s
		// after. Both looks saw what it had published before.
		"opened since the report": {
			{0, 6, []*coverage.Report{a(1), closed(1)}, ""},
			{5, 6, []*coverage.Report{a(1), closed(2)}, ""},
			{10, 6, []*coverage.Report{a(2), b(3)}, ""},
		},
		"never opened": {
			{0, 6, []*coverage.Report{a(1), half(1)}, ""},
			{5, 6, []*coverage.Report{a(2), half(2)}, ""},
			{15, 6, []*coverage.Report{a(3), half(3)}, ""},
			{20, 6, []*coverage.Report{a(4), half(4)}, unowned},
			{25, 6, []*coverage.Report{a(5), half(5)}, unowned},
			{30, 6, []*coverage.Report{a(6), b(6)}, ""},
		},
		"moved meanwhile": {
			{0, 6, []*coverage.Report{a(1), half(1)}, ""},
			{15, 7, []*coverage.Report{a(2), half(2)}, ""},
			{25, 7, []*coverage.Report{a(3), half(3)}, ""},
			{35, 7, []*coverage.Report{a(4), half(4)}, unowned},
		},
		"old reports of two": {
			{0, 6, []*coverage.Report{both(1), b(1)}, ""},
			{5, 6, []*coverage.Report{both(1), b(2)}, ""}, // a gave it away since
			{10, 6, []*coverage.Report{a(2), b(3)}, ""},
		},
		"two": {
			{0, 6, []*coverage.Report{both(1), b(1)}, ""},
			{5, 6, []*coverage.Report{both(2), b(2)}, doubled},
		},
		"silent": {
			{0, 6, []*coverage.Report{a(1)}, ""},
			{10, 6, []*coverage.Report{a(2)}, ""},
			{20, 6, []*coverage.Report{a(3)}, silent},
			{25, 6, []*coverage.Report{a(4), b(1)}, ""},
		},
		"frozen": { // whatever it says
			{0, 6, []*coverage.Report{a(1), half(4)}, ""},
			{20, 6, []*coverage.Report{a(2), half(4)}, ""},
			{40, 6, []*coverage.Report{a(3), half(4)}, ""},
			{60, 6, []*coverage.Report{a(4), half(4)}, silent},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := coverage.NewTracker(bounds)
			for _, l := range looks {
				got := ""
				for _, f := range tracker.Look(l.at*time.Second, pair(l.epoch), l.reports, nil) {
					got += f.String()
				}
				if got != l.want {
					t.Errorf("at %d s: %q, want %q", l.at, got, l.want)
				}
			}
		})
	}
}

// What differs has to differ in the same way in newer reports: an object that came between a report and a list is no
// finding, one that nobody holds is, though others come and go in its slot.
func TestDifferencesThatCount(t *testing.T) {
	tracker := coverage.NewTracker(coverage.BoundsOf(15*time.Second, 2500*time.Millisecond))
	steps := []struct {
		serial      uint64
		exist, held int    // objects in slot 1
		hash, hold  uint64 // their hashes
		listed      bool
		counts      int
		undecided   bool // before the next report
	}{
		{1, 3, 2, 0b111, 0b011, true, 0, true},
		{2, 4, 3, 0b1111, 0b0111, true, 0, false}, // another one: when the next list is due it is decided about
		{2, 5, 4, 0b11111, 0b10111, true, 0, true},
		{3, 5, 4, 0b11111, 0b10111, false, 0, true}, // not listed
		{4, 5, 4, 0b11111, 0b10111, true, 1, false},
		{5, 5, 4, 0b11111, 0b10111, false, 1, false}, // what the last list showed stands
		{6, 5, 5, 0b11111, 0b11111, true, 0, false},
		{7, 5, 4, 0b11111, 0b10111, true, 0, true},
	}
	at := time.Duration(0)
	for i, s := range steps {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			at += 5 * time.Second
			r := opens("a", s.serial, 0, 1)
			if s.held > 0 {
				r.Digests[cm][1] = sharding.Digest{Objects: s.held, Hashes: s.hold}
			}
			var census coverage.Digests
			if s.listed {
				census = coverage.Digests{cm: {1: {Objects: s.exist, Hashes: s.hash}}}
			}
			counts := tracker.Look(at, pair(6), []*coverage.Report{r, opens("b", s.serial, 2, 3)}, census)
			if len(counts) != s.counts {
				t.Errorf("counts %v, want %d", counts, s.counts)
			}
			if tracker.Undecided([]*coverage.Report{r}) && s.listed {
				t.Error("to be listed again before a has reported anew")
			}
			r.Serial++
			if got := tracker.Undecided([]*coverage.Report{r}); got != s.undecided {
				t.Errorf("to be listed again after the next report: %v, want %v", got, s.undecided)
			}
		})
	}
}

// `rota verify` ends when another look would not change what is known.
func TestSettled(t *testing.T) {
	bounds := coverage.BoundsOf(15*time.Second, 2500*time.Millisecond)
	tracker := coverage.NewTracker(bounds)
	for i, s := range []struct {
		at   time.Duration
		b    *coverage.Report
		want bool
	}{
		{0, opens("b", 1, 2, 3), false},  // it may be as old as it likes
		{10, opens("b", 2, 2), true},     // that slot 3 is shut is news
		{20, opens("b", 3, 2, 3), true},  // and over
		{21, opens("x", 3, 2, 3), false}, // b may be silent
		{40, opens("x", 4, 2, 3), true},  // it is
	} {
		tracker.Look(s.at*time.Second, pair(6), []*coverage.Report{opens("a", uint64(i+1), 0, 1), s.b},
			coverage.Digests{cm: {}})
		if got := tracker.Settled(); got != s.want {
			t.Errorf("look %d: settled %v, want %v", i, got, s.want)
		}
	}
	// A slot that was shut at the first look is waited for.
	tracker = coverage.NewTracker(bounds)
	for i, want := range []bool{false, false, true} {
		tracker.Look(time.Duration(i)*10*time.Second, pair(6),
			[]*coverage.Report{opens("a", uint64(i+1), 0, 1), opens("b", uint64(i+1), 2)}, coverage.Digests{})
		if got := tracker.Settled(); got != want {
			t.Errorf("look %d at a shut slot: settled %v, want %v", i, got, want)
		}
	}
}

func TestBoundsBy(t *testing.T) {
	slow := opens("a", 1)
	slow.Setup = map[string]string{coverage.SettingLease: "30s", coverage.SettingFence: "3s"}
	odd := opens("b", 1)
	odd.Setup = map[string]string{coverage.SettingLease: "soon", coverage.SettingFence: "3s"}
	if got, want := coverage.BoundsBy([]*coverage.Report{odd, slow}),
		coverage.BoundsOf(30*time.Second, 3*time.Second); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := coverage.BoundsBy(nil), coverage.BoundsOf(15*time.Second, 2500*time.Millisecond); got != want {
		t.Errorf("of nobody: %+v, want %+v", got, want)
	}
}
