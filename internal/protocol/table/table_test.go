package table_test

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// sample is a table with something of everything.
func sample() *table.Table {
	t := table.New(256, slot.KeyName, 1)
	t.UID = "7a0c"
	t.Put(table.Member{ID: "web-1-p3m9q", Pod: "web-1", Weight: 2, MinFormat: 1, MaxFormat: 3, Joined: 1763712005, Leaving: true})
	t.Put(table.Member{
		ID: "web-0-x7k2p", Pod: "web-0", PodUID: "6f1d", Container: "manager", Build: "v7", Weight: 1, MinFormat: 1, MaxFormat: 1, Joined: 1763712000,
	})
	own := func(first, last slot.Slot, change func(*table.Run)) {
		t.Update(slot.SetOf(slot.Range{First: first, Last: last}), change)
	}
	own(0, 84, func(r *table.Run) { r.Owner, r.Epoch, r.Unsettled = "web-0-x7k2p", 41, true })
	own(85, 120, func(r *table.Run) { r.Owner, r.Epoch, r.Next = "web-1-p3m9q", 40, "web-0-x7k2p" })
	own(121, 127, func(r *table.Run) { r.Owner, r.Epoch, r.Next, r.Ready = "web-1-p3m9q", 40, "web-0-x7k2p", true })
	own(200, 255, func(r *table.Run) { r.Epoch = 39 })
	t.Notes = map[uint64]table.Note{41: {Cause: table.CauseHanded, Versions: table.Versions{"Website.example.com": "1234", "ConfigMap": "99"}}}
	t.Expels = []table.Expel{{Pod: "web-2", At: 1763711000}}
	t.Seal(43)
	return t
}

func TestEncode(t *testing.T) {
	want := map[string]string{
		"format": "1", "uid": "7a0c", "epoch": "43", "slots": "256", "key": "Name",
		"members": "web-0-x7k2p web-0 6f1d manager v7 1 1-1 1763712000\n" +
			"web-1-p3m9q web-1 - - - 2 1-3 1763712005 leaving\n",
		"runs": "0-84 web-0-x7k2p 41 unsettled\n" +
			"85-120 web-1-p3m9q 40 -> web-0-x7k2p\n" +
			"121-127 web-1-p3m9q 40 -> web-0-x7k2p ready\n" +
			"128-199 -\n" +
			"200-255 - 39\n",
		"notes":   "41 handed ConfigMap=99 Website.example.com=1234\n",
		"expels":  "web-2 1763711000\n",
		"podUIDs": "6f1d",
	}
	require.Equal(t, "Encode", want, table.Encode(sample()))
}

func TestDecode(t *testing.T) {
	got, err := table.Decode(table.Encode(sample()))
	require.NoError(t, err)
	require.Equal(t, "Decode of Encode", sample(), got)
	got, err = table.Decode(table.Encode(table.New(1, slot.KeyUID, 7)))
	require.NoError(t, err)
	require.Equal(t, "Decode of Encode", table.New(1, slot.KeyUID, 7), got, cmpopts.EquateEmpty())
}

// TestDecodeRefuses: rule R4, whatever is not exactly a table is refused, with the field and line.
func TestDecodeRefuses(t *testing.T) {
	for _, test := range []struct{ field, old, new, want string }{
		{"format", "1", "", "field format: missing"},
		{"format", "1", "6", `field format: "6"`},
		{"epoch", "43", "-1", "field epoch"},
		{"epoch", "43", "9223372036854775808", "field epoch"},
		{"epoch", "43", "42x", "field epoch"},
		{"epoch", "43", "40", "above the table's"},
		{"slots", "256", "255", "power of two"},
		{"slots", "256", "512", "must tile"},
		{"slots", "256", "128", "must tile"},
		{"key", "Name", "name", "field key"},
		{"members", " 1-1 ", " 1 ", "field members, line 1"},
		{"members", "v7 1", "v7 0", "weight"},
		{"members", "web-0-x7k2p", "web-9-x7k2p", "not in order"},
		{"members", "web-1-p3m9q", "web-0-x7k2p", "not in order"},
		{"members", "leaving", "leavin", "field members, line 2"},
		{"runs", "0-84", "1-84", "expected one that starts at 0"},
		{"runs", "0-84", "0-83", "expected one that starts at 84"},
		{"runs", "0-84", "0-85", "expected one that starts at 86"},
		{"runs", "200-255", "200-254", "runs end at slot 254"},
		{"runs", "web-1-p3m9q 40 ->", "web-9-p3m9q 40 ->", "not a member"},
		{"runs", "-> web-0-x7k2p ready", "-> web-1-p3m9q ready", "to itself"},
		{"runs", "-> web-0-x7k2p ready", "ready", "field runs, line 3"},
		{"runs", "-> web-0-x7k2p ready", "->", "field runs, line 3"},
		{"members", "web-0-x7k2p", "\nweb-0-x7k2p", "field members, line 1"},
		{"runs", "128-199 -", "128-199 - 5 unsettled", "it has no owner"},
		{"runs", "x7k2p 41 unsettled", "x7k2p 0", "epoch 0"},
		{"runs", "unsettled", "unsettled unsettled", "field runs, line 1"},
		{"runs", "128-199 -", "", "field runs, line 4"},
		{"notes", "41 handed", "40 handed", "no note for epoch 41"},
		{"notes", "41 handed", "41 given", "unknown cause"},
		{"notes", "=99", "=099", "neither a number nor"},
		{"notes", "=99", "", "field notes, line 1"},
		{"notes", "\n", "\n41 assigned\n", "a second note"},
		{"expels", "web-2 ", "web-2", "field expels, line 1"},
	} {
		text := maps.Clone(table.Encode(sample()))
		text[test.field] = strings.Replace(text[test.field], test.old, test.new, 1)
		if got, err := table.Decode(text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %q for %q: table %v, error %v; want an error with %q", test.field, test.new, test.old, got, err, test.want)
		}
	}
	text := maps.Clone(table.Encode(sample()))
	text["epoch"] = "x"
	if _, err := table.Decode(text); err == nil || !strings.HasPrefix(err.Error(), "field epoch: ") {
		t.Errorf("a field of one line: error %v; want it to name no line", err)
	}
	newer := maps.Clone(table.Encode(sample()))
	newer["format"] = strconv.Itoa(table.Format + 1)
	if _, err := table.Decode(newer); !errors.Is(err, table.ErrFormat) {
		t.Errorf("a newer table: %v, want %v", err, table.ErrFormat)
	}
	if _, err := table.Decode(nil); err == nil {
		t.Error("no text: no error")
	}
}

// Every cause survives the text.
func TestCauses(t *testing.T) {
	for _, cause := range []table.Cause{table.CauseAssigned, table.CauseHanded, table.CauseExpelled} {
		s := sample()
		s.Notes[41] = table.Note{Cause: cause}
		got, err := table.Decode(table.Encode(s))
		if err != nil || got.Notes[41].Cause != cause {
			t.Errorf("%v: decoded as %v, error %v", cause, got, err)
		}
	}
}

// TestDecodeIgnoresUnknownFields: a later program may add what does not matter to owners.
func TestDecodeIgnoresUnknownFields(t *testing.T) {
	text := table.Encode(sample())
	text["weather"] = "fine"
	if _, err := table.Decode(text); err != nil {
		t.Error(err)
	}
}

func TestSealMergesAndForgets(t *testing.T) {
	s := sample()
	s.Update(slot.SetOf(slot.Range{First: 0, Last: 255}), func(r *table.Run) {
		*r = table.Run{Slots: r.Slots, Owner: "web-0-x7k2p", Epoch: 43}
	})
	s.Seal(44)
	want := []table.Run{{Slots: slot.Range{First: 0, Last: 255}, Owner: "web-0-x7k2p", Epoch: 43}}
	if diff := cmp.Diff(want, s.Runs); diff != "" || len(s.Notes) != 0 || s.Epoch != 44 {
		t.Errorf("epoch %d, notes %v, runs (-want +got):\n%s", s.Epoch, s.Notes, diff)
	}
}

func TestRemove(t *testing.T) {
	s := sample()
	s.Remove("web-0-x7k2p")
	s.Seal(44)
	require.NoError(t, s.Valid())
	require.Equal(t, "counts", map[string]int{"": 213, "web-1-p3m9q": 43}, s.Counts())
	if coming := s.Coming("web-0-x7k2p"); !coming.Empty() {
		t.Errorf("slots %v still move to it", coming)
	}
}

func TestCloneIsDeep(t *testing.T) {
	s := sample()
	c := s.Clone()
	c.Remove("web-0-x7k2p")
	c.Expels[0].At = 0
	c.Notes[41].Versions["ConfigMap"] = "1"
	c.Seal(50)
	require.Equal(t, "changing the clone changed the original", sample(), s)
}

func TestLookup(t *testing.T) {
	s := sample()
	for at, want := range map[slot.Slot]string{0: "web-0-x7k2p", 84: "web-0-x7k2p", 85: "web-1-p3m9q", 127: "web-1-p3m9q", 128: "", 255: ""} {
		if got := s.At(at); got.Owner != want || got.Slots != (slot.Range{First: at, Last: at}) {
			t.Errorf("At(%d) = %+v, want owner %q", at, got, want)
		}
	}
	many := fleet(20, 3, 256)
	for _, r := range many.Runs {
		for at := r.Slots.First; at <= r.Slots.Last; at++ {
			want := r
			want.Slots = slot.Range{First: at, Last: at}
			if got := many.At(at); got != want {
				t.Errorf("At(%d) = %+v, want %+v", at, got, want)
			}
		}
	}
	if got := s.Owned("web-1-p3m9q"); got.String() != "85-127" {
		t.Errorf("Owned = %v", got)
	}
	if got := s.Coming("web-0-x7k2p"); got.String() != "85-127" {
		t.Errorf("Coming = %v", got)
	}
	if _, ok := s.Member("web-9"); ok {
		t.Error("found a member that is not there")
	}
}

func TestVersions(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "0", -1}, {"9", "10", -1}, {"10", "9", 1}, {"123", "123", 0}, {"99999999999999999999999", "100000000000000000000000", -1}} {
		if got := resourceversion.Compare(test.a, test.b); got != test.want {
			t.Errorf("resourceversion.Compare(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
	a, b := table.Versions{"A": "9", "B": "5"}, table.Versions{"A": "10", "C": "1"}
	want := table.Versions{"A": "10", "B": "5", "C": "1"}
	if diff := cmp.Diff(want, a.Merge(b)); diff != "" || a["A"] != "9" {
		t.Errorf("Merge (-want +got):\n%s", diff)
	}
	if got := table.Versions(nil).Merge(b); !maps.Equal(got, b) {
		t.Errorf("Merge into nothing = %v", got)
	}
}

// fleet is a table of a large Deployment in the middle of nothing: each member owns about the same number of slots, in
// rangesEach ranges, and every slot changed hands at an epoch of its own choice.
func fleet(members, rangesEach int, slots slot.Count) *table.Table {
	t := table.New(slots, slot.KeyName, 1)
	// A fixed sequence of letters that look random.
	seed := uint32(1)
	letters := func() string {
		var b [5]byte
		for i := range b {
			seed = seed*1664525 + 1013904223
			b[i] = "bcdfghjklmnpqrstvwxz2456789"[seed>>16%27]
		}
		return string(b[:])
	}
	const base = 1763712000
	for i := range members {
		pod := "web-7d9f8b6c5d-" + letters()
		t.Put(table.Member{
			ID: pod + "-" + letters(), Pod: pod, PodUID: fmt.Sprintf("6f1d2c3b-0000-4000-8000-%012d", i),
			Container: "manager", Build: "v1.7.0", Weight: 1, MinFormat: 1, MaxFormat: 1, Joined: base + int64(i)/7,
		})
	}
	parts := members * rangesEach
	for part := range parts {
		first, last := part*int(slots)/parts, (part+1)*int(slots)/parts-1
		if last < first {
			continue
		}
		epoch := uint64(base)
		if rangesEach > 1 {
			epoch += uint64(part * 7919 % 100000)
		}
		t.Update(slot.SetOf(slot.Range{First: slot.Slot(first), Last: slot.Slot(last)}), func(r *table.Run) {
			r.Owner, r.Epoch = t.Members[part%len(t.Members)].ID, epoch
		})
	}
	t.Seal(base + 200000)
	return t
}

func textSize(text map[string]string) (all, podUIDs int) {
	for field, value := range text {
		all += len(field) + len(value)
	}
	return all, len(text[table.FieldPodUIDs])
}

// TestSize: a table of 1,000 members and 4,096 slots takes at most 50 KB, next to the POD_UIDs.
func TestSize(t *testing.T) {
	for _, test := range []struct{ members, rangesEach, limit int }{
		{3, 1, 1000},
		{1000, 1, 50_000},
		{1000, 3, 110_000},
	} {
		text := table.Encode(fleet(test.members, test.rangesEach, 4096))
		all, podUIDs := textSize(text)
		t.Logf("%d members, %d ranges each: %d bytes of text (members %d, runs %d), and %d of POD_UIDs",
			test.members, test.rangesEach, all-podUIDs, len(text["members"]), len(text["runs"]), podUIDs)
		if all-podUIDs > test.limit {
			t.Errorf("%d members: %d bytes, want at most %d", test.members, all-podUIDs, test.limit)
		}
	}
}
