package table_test

import (
	"strings"
	"testing"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Words and numbers must survive the text, in which spaces part them, and be of bounded length.
func TestValidWords(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "a": true, "a~b": false, "a:b": true, "a b": false, " ": false, "a\x7f": false, "ä": false, "-": false,
		strings.Repeat("a", 253): true, strings.Repeat("a", 254): false,
	} {
		m := table.Member{ID: name, Weight: 1, MinFormat: 1, MaxFormat: 1}
		if err := table.ValidMember(m); (err == nil) != want {
			t.Errorf("a member %q: %v, want it to be valid: %v", name, err, want)
		}
	}
	for version, want := range map[string]bool{
		"": false, "0": true, "00": false, "7": true, "-7": false, "7a": false,
		strings.Repeat("9", 40): true, strings.Repeat("9", 41): false,
	} {
		s := sample()
		s.Notes[41].Versions["ConfigMap"] = version
		if err := s.Valid(); (err == nil) != want {
			t.Errorf("version %q: %v, want it to be valid: %v", version, err, want)
		}
	}
}

// R4: what does not tile is refused, with the numbers that it takes to mend it.
func TestValidTiling(t *testing.T) {
	for _, test := range []struct {
		runs []slot.Range
		want string
	}{
		{[]slot.Range{{First: 0, Last: 255}}, ""},
		{[]slot.Range{{First: 0, Last: 99}, {First: 100, Last: 255}}, ""},
		{[]slot.Range{{First: 0, Last: 99}, {First: 101, Last: 255}}, "the slots 0 to 255; expected one that starts at 100"},
		{[]slot.Range{{First: 0, Last: 256}}, "the slots 0 to 255; expected one that starts at 0"},
		{[]slot.Range{{First: 0, Last: 254}}, "runs end at slot 254: they must tile the slots 0 to 255"},
	} {
		tab := table.New(256, slot.KeyName, 1)
		tab.Runs = nil
		for _, r := range test.runs {
			tab.Runs = append(tab.Runs, table.Run{Slots: r})
		}
		if err := tab.Valid(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.runs, err, test.want)
		}
	}
}
