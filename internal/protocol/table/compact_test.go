package table_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

func TestLargeTablesAreAbbreviated(t *testing.T) {
	text := table.Encode(fleet(65, 1, 4096))
	first := func(field string) string { return strings.SplitN(text[field], "\n", 2)[0] }
	got := map[string]string{
		"base": text["base"], "names": text["names"], "classes": text["classes"], "members": first("members"), "runs": first("runs"),
	}
	want := map[string]string{
		"base": "1763712000", "names": "a web-7d9f8b6c5d-\n", "classes": "a manager v1.7.0 1 1-1\n",
		"members": got["members"], "runs": got["runs"],
	}
	require.Equal(t, "Encode", want, got)
	if !strings.HasPrefix(got["members"], "a~") || !strings.Contains(got["members"], " a +") {
		t.Errorf("first member: %q", got["members"])
	}
	if !strings.HasPrefix(got["runs"], "0-62 a~") || !strings.HasSuffix(got["runs"], " +0") {
		t.Errorf("first run: %q", got["runs"])
	}
	if n := len(strings.Fields(text[table.FieldPodUIDs])); n != 65 {
		t.Errorf("%d POD_UIDs, want 65", n)
	}
	if long := table.Encode(fleet(64, 1, 4096)); long["base"] != "" || strings.Contains(long["members"], "~") {
		t.Error("64 members are abbreviated")
	}
}

// Letters go to what most members share, a to the most frequent; the base is the lowest time or epoch.
func TestLargeTablesNameWhatIsFrequent(t *testing.T) {
	tab := table.New(128, slot.KeyName, 1)
	for set := range 30 { // of 1 to 30 members
		for i := range set + 1 {
			pod := fmt.Sprintf("set%02d-p%02d", set, i)
			tab.Put(table.Member{ID: pod + "-x", Pod: pod, Build: fmt.Sprintf("v%02d", set), Weight: 1, MinFormat: 1, MaxFormat: 1, Joined: 5000})
		}
	}
	tab.Put(table.Member{ID: "alone", Weight: 1, MinFormat: 1, MaxFormat: 1}) // has not joined at any time
	tab.Update(slot.SetOf(slot.Range{First: 0, Last: 63}), func(r *table.Run) { r.Owner, r.Epoch = "set00-p00-x", 7000 })
	lines := func(field string) []string { return strings.Split(strings.TrimSpace(table.Encode(tab)[field]), "\n") }
	names, classes := lines("names"), lines("classes")
	for i := range 26 {
		letter, set := string(rune('a'+i)), 29-i
		if want := fmt.Sprintf("%s set%02d-", letter, set); names[i] != want {
			t.Errorf("names: %q, want %q", names[i], want)
		}
		if want := fmt.Sprintf("%s - v%02d 1 1-1", letter, set); classes[i] != want {
			t.Errorf("classes: %q, want %q", classes[i], want)
		}
	}
	if got := lines("base")[0]; got != "5000" {
		t.Errorf("base %s, want the lowest time, 5000", got)
	}
	tab.Update(slot.SetOf(slot.Range{First: 0, Last: 63}), func(r *table.Run) { r.Epoch = 3000 })
	if got := lines("base")[0]; got != "3000" {
		t.Errorf("base %s, want the lowest epoch, 3000", got)
	}
}

// TestLargeTablesSurvive: members of all sorts, many of which do not fit the abbreviations.
func TestLargeTablesSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := table.New(128, slot.KeyName, 1)
		tab.Notes = map[uint64]table.Note{}
		pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
		for i := range rapid.IntRange(65, 120).Draw(t, "members") {
			pod := fmt.Sprintf("%s%d", pick("set", "web-7d9f8b6c5d-", "web-5c4d8f7b9-", "web", "", "a-b-c-", "-"), i)
			m := table.Member{
				ID: pod + pick("suffix", "-x7k2p", "-", "", "-x-y"), Pod: pod, Container: pick("container", "", "manager"),
				Build: pick("build", "", "v1", "v2"), Weight: rapid.IntRange(1, 20).Draw(t, "weight"), MinFormat: 1,
				MaxFormat: rapid.IntRange(1, 3).Draw(t, "format"), Joined: rapid.Int64().Draw(t, "joined"),
				Leaving: rapid.Bool().Draw(t, "leaving"),
			}
			if rapid.Bool().Draw(t, "has a POD_UID") {
				m.PodUID = fmt.Sprintf("uid-%d", i)
			}
			tab.Put(m)
		}
		if tab.Reads(table.DutyFormat) || rapid.Bool().Draw(t, "duties") {
			for i := range tab.Members {
				m := tab.Members[i]
				m.MaxFormat = table.DutyFormat
				m.Duties = table.JoinDuties(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2).Draw(t, "list")...)
				tab.Put(m)
			}
		}
		for i := range slot.Slot(128) {
			if owner := rapid.IntRange(-1, len(tab.Members)-1).Draw(t, "owner"); owner >= 0 {
				tab.Update(slot.SetOf(slot.Range{First: i, Last: i}), func(r *table.Run) {
					r.Owner, r.Epoch = tab.Members[owner].ID, 1+rapid.Uint64Max(1<<61).Draw(t, "epoch")
				})
			}
		}
		tab.Seal(table.MaxEpoch)
		require.NoError(t, tab.Valid())
		decoded, err := table.Decode(table.Encode(tab))
		require.NoError(t, err)
		require.Equal(t, "Decode of Encode", tab, decoded, cmpopts.EquateEmpty())
	})
}

func TestDecodeRefusesAbbreviationsUnknown(t *testing.T) {
	for _, test := range []struct{ field, old, new, want string }{
		{"base", "1763712000", "x", "field base"},
		{"base", "1763712000", "9223372036854775807", "too large"},
		{"names", "a web", "b web", `field names has no "a"`},
		{"names", "a web-7d9f8b6c5d-", "a", "field names, line 1"},
		{"classes", "a manager", "b manager", `field classes has no "a"`},
		{"classes", " 1-1", "", "field classes, line 1"},
		{"runs", "a~", "z~", `field names has no "z"`},
	} {
		text := table.Encode(fleet(100, 1, 256))
		text[test.field] = strings.Replace(text[test.field], test.old, test.new, 1)
		_, err := table.Decode(text)
		require.ErrorSays(t, err, test.want)
	}
	text := table.Encode(fleet(100, 1, 256))
	text["podUIDs"] = "only-one"
	_, err := table.Decode(text)
	require.ErrorSays(t, err, "podUIDs ends before")
	delete(text, "base")
	if _, err := table.Decode(text); err == nil {
		t.Error("without base: no error")
	}
}

func BenchmarkCodec(b *testing.B) {
	t := fleet(1000, 1, 4096)
	text := table.Encode(t)
	b.Run("Encode", func(b *testing.B) {
		for b.Loop() {
			table.Encode(t)
		}
	})
	b.Run("Decode", func(b *testing.B) {
		for b.Loop() {
			_, err := table.Decode(text)
			require.NoError(b, err)
		}
	})
}
