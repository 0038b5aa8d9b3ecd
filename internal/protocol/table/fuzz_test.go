package table_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// FuzzDecode: no text makes Decode panic, and what it accepts survives another round.
func FuzzDecode(f *testing.F) {
	for i, t := range []*table.Table{sample(), withGone(), withDuties(), table.New(1, slot.KeyUID, 1), fleet(200, 1, 256), sample()} {
		if i == 5 {
			t.Members = slices.Clone(t.Members)
			for j := range t.Members {
				t.Members[j].MaxFormat = table.Format
			}
			t.Canary = table.Canary{Build: "v8", Steps: []int{5, 20}, Since: 1, Verdict: "a b"}
			t.PutPin(table.Pin{Object: "a/x", Labels: "n=1", Since: 1, Reason: "c d"})
			t.Members[0].Labels = "n=1,o=2"
		}
		text := table.Encode(t)
		f.Add(text["epoch"], text["slots"], text["key"], text["members"], text["runs"], text["notes"], text["expels"], text["base"], text["names"], text["classes"], text["podUIDs"], text["gone"], text["duties"], text["able"], text["orders"], text["pins"], text["labels"])
	}
	f.Fuzz(func(t *testing.T, epoch, slots, key, members, runs, notes, expels, base, names, classes, podUIDs, gone, duties, able, orders, pins, labels string) {
		text := map[string]string{
			"format": "1", "uid": "u", "epoch": epoch, "slots": slots, "key": key, "members": members, "runs": runs, "notes": notes,
			"expels": expels, "podUIDs": podUIDs,
		}
		if base != "" {
			text["base"], text["names"], text["classes"] = base, names, classes
		}
		if gone != "" {
			text["format"], text["gone"] = "2", gone
		}
		if duties != "" {
			text["format"], text["duties"], text["able"] = "3", duties, able
		}
		for field, lines := range map[string]string{"orders": orders, "pins": pins, "labels": labels} {
			if lines != "" {
				text["format"], text[field] = "5", lines
			}
		}
		first, err := table.Decode(text)
		if err != nil {
			return
		}
		second, err := table.Decode(table.Encode(first))
		if err != nil {
			t.Fatalf("%v\n%+v", err, first)
		}
		if diff := cmp.Diff(first, second, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the second round (-first +second):\n%s", diff)
		}
	})
}
