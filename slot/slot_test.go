package slot_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/slot"
)

func TestCountValidate(t *testing.T) {
	for count, ok := range map[slot.Count]bool{
		-1: false, 0: false, 1: true, 2: true, 3: false, 255: false, 256: true, 4096: true, 8192: false,
	} {
		if err := count.Validate(); (err == nil) != ok {
			t.Errorf("Count(%d).Validate() = %v, want ok %t", count, err, ok)
		}
	}
}

func TestCountOf(t *testing.T) {
	for _, test := range []struct {
		count slot.Count
		hash  uint64
		want  slot.Slot
	}{
		{1, 0, 0},
		{1, ^uint64(0), 0},
		{2, 1<<63 - 1, 0},
		{2, 1 << 63, 1},
		{256, 0xfe_ffff_ffff_ffff_ff, 0xfe},
		{4096, 0xabc0_0000_0000_0000, 0xabc},
		{4096, ^uint64(0), 4095},
	} {
		if got := test.count.Of(test.hash); got != test.want {
			t.Errorf("Count(%d).Of(%#x) = %v, want %v", test.count, test.hash, got, test.want)
		}
	}
}

// TestHashesTile: the hash ranges of the slots tile the hash space, and Of is their inverse.
func TestHashesTile(t *testing.T) {
	for c := slot.Count(1); c <= slot.MaxCount; c *= 2 {
		next := uint64(0)
		for s := range slot.Slot(c) {
			first, last := c.Hashes(s)
			if first != next || last < first || c.Of(first) != s || c.Of(last) != s {
				t.Fatalf("slot %d of %d: hashes %#x to %#x, want them to start at %#x", s, c, first, last, next)
			}
			next = last + 1
		}
		if next != 0 {
			t.Fatalf("%d slots end before %#x", c, next)
		}
	}
}

// TestDoublingSplits: doubling the number of slots splits every slot in two.
func TestDoublingSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, hash := slot.Count(1<<rapid.IntRange(0, 11).Draw(t, "log2 of the count")), rapid.Uint64().Draw(t, "hash")
		if fine, coarse := (2 * c).Of(hash), c.Of(hash); fine/2 != coarse {
			t.Fatalf("hash %#x: slot %d of %d, but %d of %d", hash, coarse, c, fine, 2*c)
		}
	})
}

// TestHashUID: Kubernetes' own shardSelector must agree with ours.
func TestHashUID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.String().Draw(t, "uid")
		want := fnv.New64a() // what Kubernetes specifies for shard selectors
		want.Write([]byte(uid))
		if got := slot.HashUID(uid); got != want.Sum64() {
			t.Fatalf("HashUID(%q) = %x, want %x", uid, got, want.Sum64())
		}
	})
}

// TestHashName pins the hash: labels in clusters depend on it.
func TestHashName(t *testing.T) {
	for _, test := range []struct {
		namespace, name string
		want            uint64
	}{
		{"", "", 0xef46db3751d8e999}, // xxHash64 of nothing, seed 0
		{"", "a", 0xd24ec4f1a98c6e5b},
	} {
		if got := slot.HashName(test.namespace, test.name); got != test.want {
			t.Errorf("HashName(%q, %q) = %#x, want %#x", test.namespace, test.name, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		namespace, name := rapid.StringN(1, 63, 63).Draw(t, "namespace"), rapid.String().Draw(t, "name")
		if got, want := slot.HashName(namespace, name), slot.HashName("", namespace+"/"+name); got != want {
			t.Fatalf("HashName(%q, %q) = %#x, want the hash of the joined name, %#x", namespace, name, got, want)
		}
	})
}

func TestKey(t *testing.T) {
	for _, test := range []struct {
		key             slot.Key
		namespace, name string
		want            uint64
	}{
		{slot.KeyName, "ns", "a", slot.HashName("ns", "a")},
		{slot.KeyName, "", "a", slot.HashName("", "a")},
		{slot.KeyNamespace, "ns", "a", slot.HashName("", "ns")},
		{slot.KeyNamespace, "", "a", slot.HashName("", "a")},
		{slot.KeyUID, "ns", "a", slot.HashUID("some-uid")},
	} {
		if got := test.key.Hash(test.namespace, test.name, "some-uid"); got != test.want {
			t.Errorf("%v.Hash(%q, %q) = %#x, want %#x", test.key, test.namespace, test.name, got, test.want)
		}
		if parsed, err := slot.ParseKey(test.key.String()); err != nil || parsed != test.key {
			t.Errorf("ParseKey(%q) = %v, %v", test.key, parsed, err)
		}
	}
	for _, bad := range []string{"", "name", "Unknown", "Key"} {
		if key, err := slot.ParseKey(bad); err == nil || key != slot.KeyUnknown {
			t.Errorf("ParseKey(%q) = %v, %v; want an error", bad, key, err)
		}
	}
}

// TestNamesSpread: real names fall evenly into the slots; FNV would not do (short, similar names).
func TestNamesSpread(t *testing.T) {
	const objects, c = 25600, slot.Count(256)
	counts := make([]int, c)
	for i := range objects {
		counts[c.Of(slot.HashName("team-a", fmt.Sprintf("website-%d", i)))]++
	}
	// 100 expected in each; six standard deviations are 60.
	if low, high := slices.Min(counts), slices.Max(counts); low < 40 || high > 160 {
		t.Errorf("%d objects in %d slots: from %d to %d each, want about %d", objects, c, low, high, objects/c)
	}
}

func TestAll(t *testing.T) {
	for _, c := range []slot.Count{1, 256, slot.MaxCount} {
		all := c.All()
		if all.Len() != int(c) || !all.Has(slot.Slot(c-1)) || all.Has(slot.Slot(c)) {
			t.Errorf("the slots of %d hashes are %v", c, all)
		}
	}
}
