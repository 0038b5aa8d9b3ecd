package sharding

import (
	"hash/fnv"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/rota-dev/rota/slot"
)

func drawSlots(t *rapid.T) (slot.Count, slot.Set) {
	count := slot.Count(1 << rapid.IntRange(0, 12).Draw(t, "bits"))
	var set slot.Set
	n := rapid.Custom(func(t *rapid.T) slot.Slot { return slot.Slot(rapid.IntRange(0, int(count)-1).Draw(t, "slot")) })
	for range rapid.IntRange(0, 12).Draw(t, "runs") {
		a, b := n.Draw(t, "first"), n.Draw(t, "last")
		set.AddRange(slot.Range{First: min(a, b), Last: min(max(a, b),
			min(a, b)+slot.Slot(rapid.IntRange(0, 200).Draw(t, "length")))})
	}
	for range rapid.IntRange(0, 2).Draw(t, "combs") {
		for m := n.Draw(t, "comb"); int(m) < int(count); m += 2 {
			set.Add(m)
		}
	}
	return count, set
}

// aLabel is what the tests select by.
const aLabel = "rota.dev/hash"

// The selector selects exactly the slots that it says it does, and those are at least the slots wanted.
func TestLabelSelector(t *testing.T) { rapid.Check(t, labelSelector) }

func labelSelector(t *rapid.T) {
	count, set := drawSlots(t)
	l := labelScope{label: aLabel, slots: count}
	text, asked := l.selector(set)
	if len(text) > 6*maxValues+100 {
		t.Errorf("a selector of %d bytes", len(text))
	}
	selector, err := labels.Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if missing := set.Minus(asked); !missing.Empty() {
		t.Errorf("%v lacks %v", asked, missing)
	}
	if len(set.Ranges()) < 2 && asked != set {
		t.Errorf("asks for %v where %v is wanted", asked, set)
	}
	for range 200 {
		hash := rand.Uint64()
		if got, want := selector.Matches(labels.Set{aLabel: LabelValue(hash)}), asked.Has(count.Of(hash)); got != want {
			t.Fatalf("%q: value %s of slot %v: selected %v, want %v", text, LabelValue(hash), count.Of(hash), got, want)
		}
	}
	if selector.Matches(labels.Set{}) {
		t.Errorf("%q selects objects without the label", text)
	}
}

func TestLabelSelectorTexts(t *testing.T) {
	for _, c := range []struct {
		slots  slot.Count
		ranges []slot.Range
		want   string
	}{
		{256, nil, "rota.dev/hash>4095"},
		{256, []slot.Range{{First: 0, Last: 255}}, "rota.dev/hash"},
		{256, []slot.Range{{First: 0, Last: 63}}, "rota.dev/hash<1024"},
		{256, []slot.Range{{First: 192, Last: 255}}, "rota.dev/hash>3071"},
		{256, []slot.Range{{First: 1, Last: 2}}, "rota.dev/hash>15,rota.dev/hash<48"},
		{4096, []slot.Range{{First: 1, Last: 1}, {First: 7, Last: 7}}, "rota.dev/hash in (1,7)"},
		{4096, []slot.Range{{First: 1, Last: 5}, {First: 7, Last: 9}},
			"rota.dev/hash>0,rota.dev/hash<10,rota.dev/hash notin (6)"},
	} {
		set := slot.SetOf(c.ranges...)
		if got, _ := (labelScope{label: aLabel, slots: c.slots}).selector(set); got != c.want {
			t.Errorf("%v of %d: %q, want %q", set, c.slots, got, c.want)
		}
	}
}

func TestLabelRight(t *testing.T) {
	hash := uint64(7)<<52 | 1
	l := labelScope{label: aLabel, slots: 256, hash: func(metav1.Object) (uint64, bool) { return hash, true }}
	for value, want := range map[string]bool{"7": true, "07": false, "+7": false, "8": false, "": false, "x": false,
		"4103": false} {
		obj := &metav1.ObjectMeta{Labels: map[string]string{aLabel: value}}
		if got := l.Right(obj); got != want {
			t.Errorf("%q is right: %v, want %v", value, got, want)
		}
	}
	if LabelValue(hash) != "7" || LabelValue(0) != "0" || LabelValue(1<<64-1) != "4095" {
		t.Error("LabelValue is wrong")
	}
}

var shardRange = regexp.MustCompile(`^shardRange\(object\.metadata\.uid, '(0x[0-9a-f]{16,17})', '(0x[0-9a-f]{16,17})'\)$`)

// The selector selects, by the hash that Kubernetes specifies, exactly the slots that it says it does, and those are at least the
// slots wanted.
func shardRanges(t *rapid.T) {
	count, set := drawSlots(t)
	var o Request
	asked := hashScope{slots: count}.Narrow(&o, set)
	if missing := set.Minus(asked); !missing.Empty() {
		t.Errorf("%v lacks %v", asked, missing)
	}
	if len(asked.Ranges()) > maxRanges || len(set.Ranges()) <= maxRanges && asked != set && asked != Everything {
		t.Errorf("asks for %v where %v is wanted", asked, set)
	}
	if (o.ShardSelector == "") != (asked == Everything) {
		t.Errorf("%q for %v", o.ShardSelector, asked)
	}
	if o.ShardSelector == "" {
		return
	}
	type hashRange struct{ start, end *big.Int } // end is excluded
	var ranges []hashRange
	for part := range strings.SplitSeq(o.ShardSelector, " || ") {
		words := shardRange.FindStringSubmatch(part)
		if words == nil {
			t.Fatalf("%q: %q is no range", o.ShardSelector, part)
		}
		start, _ := new(big.Int).SetString(words[1], 0)
		end, _ := new(big.Int).SetString(words[2], 0)
		if start.Cmp(end) >= 0 {
			t.Fatalf("%q: %q is empty", o.ShardSelector, part)
		}
		ranges = append(ranges, hashRange{start, end})
	}
	for range 50 {
		uid := strconv.FormatUint(rand.Uint64(), 36)
		hash := fnv.New64a()
		hash.Write([]byte(uid))
		sum := new(big.Int).SetUint64(hash.Sum64())
		got := slices.ContainsFunc(ranges, func(r hashRange) bool { return r.start.Cmp(sum) <= 0 && sum.Cmp(r.end) < 0 })
		if n := count.Of(slot.KeyUID.Hash("", "", uid)); got != asked.Has(n) && !asked.Empty() {
			t.Fatalf("%q: UID %s of slot %v: selected %v", o.ShardSelector, uid, n, got)
		}
	}
}

func TestShardRanges(t *testing.T) {
	rapid.Check(t, shardRanges)
	var o Request
	hashScope{slots: 4}.Narrow(&o, slot.SetOf(slot.Range{First: 1, Last: 1}, slot.Range{First: 3, Last: 3}))
	want := "shardRange(object.metadata.uid, '0x4000000000000000', '0x8000000000000000') || " +
		"shardRange(object.metadata.uid, '0xc000000000000000', '0x10000000000000000')"
	if o.ShardSelector != want {
		t.Errorf("%q, want %q", o.ShardSelector, want)
	}
}

func TestOptionsThatDoNotFit(t *testing.T) {
	for i, o := range []Options{
		{Mode: SlotLabel, Key: slot.KeyUID}, {Mode: ShardSelector, Key: slot.KeyName},
		{Mode: ShardSelector, Key: slot.KeyNamespace}, {Mode: 9},
	} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Errorf("%v with key %v is taken", o.Mode, o.Key)
				}
			}()
			New(o)
		})
	}
	if s := New(Options{Mode: ShardSelector}); s.key != slot.KeyUID {
		t.Errorf("key %v", s.key)
	}
	if got := JoinSelectors("", "a=b", " ", "c in (d,e)"); got != "a=b,c in (d,e)" {
		t.Errorf("joined %q", got)
	}
}
