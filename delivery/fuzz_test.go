package delivery

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func FuzzLabelSelector(f *testing.F) { f.Fuzz(rapid.MakeFuzz(labelSelector)) }

func FuzzShardSelector(f *testing.F) { f.Fuzz(rapid.MakeFuzz(shardRanges)) }

// FuzzParseKind: what is taken is a kind that can be written and read again.
func FuzzParseKind(f *testing.F) {
	for _, text := range []string{"Filter", "slot-label", "SHARDSELECTOR", "Unknown", "", "-", "filter "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kind, err := ParseKind(text)
		if err != nil {
			if kind != KindUnknown || !strings.Contains(err.Error(), "delivery") {
				t.Errorf("ParseKind(%q) = %v, %v", text, kind, err)
			}
			return
		}
		var again Kind
		if out, err := kind.MarshalText(); err != nil || again.UnmarshalText(out) != nil || again != kind || kind == KindUnknown {
			t.Errorf("ParseKind(%q) = %v, which is written as %q and read as %v", text, kind, out, again)
		}
	})
}
