package sharding

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func FuzzLabelSelector(f *testing.F) { f.Fuzz(rapid.MakeFuzz(labelSelector)) }

func FuzzShardSelector(f *testing.F) { f.Fuzz(rapid.MakeFuzz(shardRanges)) }

// FuzzParseMode: what is taken is a kind that can be written and read again.
func FuzzParseMode(f *testing.F) {
	for _, text := range []string{"Filter", "slot-label", "SHARDSELECTOR", "Unknown", "", "-", "filter "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kind, err := ParseMode(text)
		if err != nil {
			if kind != ModeUnknown || !strings.Contains(err.Error(), "delivery") {
				t.Errorf("ParseMode(%q) = %v, %v", text, kind, err)
			}
			return
		}
		var again Mode
		if out, err := kind.MarshalText(); err != nil || again.UnmarshalText(out) != nil || again != kind ||
			kind == ModeUnknown {
			t.Errorf("ParseMode(%q) = %v, which is written as %q and read as %v", text, kind, out, again)
		}
	})
}
