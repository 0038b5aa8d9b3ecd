package coverage_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

var (
	website = schema.GroupKind{Group: "web.example.com", Kind: "Website"}
	cm      = schema.GroupKind{Kind: "ConfigMap"}
)

func full() *coverage.Report {
	r := &coverage.Report{
		Member: "web-0-x7k2p", Serial: 17, Fold: 1,
		Digests: coverage.Digests{
			website: {0: {Objects: 12, Hashes: 0x5f3ac0de00000001}, 90: {Objects: 1, Hashes: 7}},
			cm:      {},
		},
		Owners:  map[schema.GroupKind]map[schema.GroupKind]bool{cm: {website: true, {Kind: "Node"}: false}},
		Setup:   map[string]string{coverage.SettingLease: "15s", coverage.SettingFence: "2.5s"},
		Waiting: map[slot.Slot]time.Duration{7: 12 * time.Second},
	}
	r.Open.AddRange(slot.Range{First: 0, Last: 84})
	r.Open.Add(90)
	return r
}

func encode(t testing.TB, r *coverage.Report) map[string]string {
	t.Helper()
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReportsAreText(t *testing.T) {
	data := encode(t, full())
	want := "ConfigMap owned-by Node:cluster Website.web.example.com:namespaced\nWebsite.web.example.com\n0 12 " +
		"5f3ac0de00000001\n90 1 0000000000000007\n"
	if got := data["objects"]; got != want {
		t.Errorf("objects:\n%s\nwant:\n%s", got, want)
	}
	back, err := coverage.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), back, cmp.AllowUnexported(slot.Set{})); diff != "" {
		t.Error(diff)
	}
}

func TestBadReports(t *testing.T) {
	for name, change := range map[string]struct{ field, text, word string }{
		"no member":        {"member", "", "member"},
		"bad slot":         {"open", "0-84 4096", "4096"},
		"bad range":        {"open", "9-3", "9-3"},
		"no serial":        {"serial", "", "serial"},
		"bad fold":         {"fold", "3", "\"3\""},
		"slot of a fold":   {"fold", "4", "line 4"},
		"bad setting":      {"setup", "LeaseDuration\n", "line 1"},
		"slot before kind": {"objects", "0 1 2\n", "line 1"},
		"bad hash":         {"objects", "ConfigMap\n0 1 xyz\n", "line 2"},
		"bad owner":        {"objects", "ConfigMap owned-by Node\n", "line 1"},
		"no owner":         {"objects", "ConfigMap owned-by\n", "line 1"},
		"bad waiting":      {"waiting", "7\n", "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			data := encode(t, full())
			data[change.field] = change.text
			if _, err := coverage.Decode(data); err == nil || !strings.Contains(err.Error(), change.word) ||
				!strings.Contains(err.Error(), "report") {
				t.Errorf("error %v, want one that names %q and the field %s", err, change.word, change.field)
			}
		})
	}
}

// A member with hundreds of kinds and thousands of slots sums up several slots in one figure: its report never outgrows
// an object's annotations, and what it lacks is still found.
func TestReportsOfAnySizeFit(t *testing.T) {
	const limit = 256 << 10 // of annotations
	for _, c := range []struct{ slots, kinds, fold int }{{256, 5, 1}, {256, 20, 1}, {256, 60, 4}, {256, 170, 16},
		{4096, 11, 16}, {4096, 60, 64}} {
		r := &coverage.Report{Member: "m", Serial: 1, Digests: coverage.Digests{}, Waiting: map[slot.Slot]time.Duration{}}
		census := coverage.Digests{}
		kind := func(k int) schema.GroupKind {
			return schema.GroupKind{Group: "example.com", Kind: fmt.Sprintf("Kind%d", k)}
		}
		for k := range c.kinds {
			r.Digests[kind(k)], census[kind(k)] = map[slot.Slot]delivery.Digest{}, map[slot.Slot]delivery.Digest{}
			for n := range slot.Slot(c.slots) {
				d := delivery.Digest{Objects: 25, Hashes: 0xdeadbeefdeadbeef * uint64(n+3) * uint64(k+1)}
				if n%5 != 2 { // another member has these
					r.Digests[kind(k)][n] = d
					r.Open.Add(n)
				}
				r.Waiting[n] = time.Hour
				census[kind(k)][n] = d
			}
		}
		data := encode(t, r)
		back, err := coverage.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if size := coverage.Size(data); size > limit*3/4 || back.Fold != c.fold {
			t.Errorf("%d slots, %d kinds: %d bytes of %d, %d slots folded into one, want %d", c.slots, c.kinds, size, limit,
				back.Fold, c.fold)
		}
		tab := table.New(slot.Count(c.slots), slot.KeyName, 9)
		tab.Put(table.Member{ID: "m", Pod: "m", Weight: 1, MinFormat: 1, MaxFormat: 1})
		tab.Put(table.Member{ID: "other", Pod: "other", Weight: 1, MinFormat: 1, MaxFormat: 1})
		tab.Runs = nil
		for n := range slot.Slot(c.slots) {
			owner := "m"
			if n%5 == 2 {
				owner = "other"
			}
			tab.Runs = append(tab.Runs, table.Run{Slots: slot.Range{First: n, Last: n}, Owner: owner, Epoch: 7})
		}
		// The other one's report is exact.
		other := &coverage.Report{Member: "other", Serial: 1, Fold: 1, Digests: coverage.Digests{}}
		for k := range c.kinds {
			other.Digests[kind(k)] = map[slot.Slot]delivery.Digest{}
			for n := slot.Slot(2); int(n) < c.slots; n += 5 {
				other.Open.Add(n)
				other.Digests[kind(k)][n] = census[kind(k)][n]
			}
		}
		differences := func() (out []coverage.Finding) {
			for _, f := range coverage.Compare(tab, []*coverage.Report{back, other}, census) {
				if f.What != coverage.Stalled {
					out = append(out, f)
				}
			}
			return out
		}
		if found := differences(); len(found) > 0 {
			t.Errorf("%d slots, %d kinds: %d findings though all is well: %v", c.slots, c.kinds, len(found), found[0])
		}
		last := slot.Slot(c.slots - 1)
		d := census[kind(3)][last]
		census[kind(3)][last] = delivery.Digest{Objects: d.Objects + 1, Hashes: d.Hashes ^ 99}
		owner := tab.At(last).Owner
		found := differences()
		if len(found) != 1 || found[0].Kind != kind(3) || found[0].Members != owner || found[0].Slot > last ||
			max(found[0].Slot, found[0].Last) < last {
			t.Errorf("%d slots, %d kinds: an object that %s lacks in slot %d is found as %v", c.slots, c.kinds, owner, last,
				found)
		}
	}
}

// What no ConfigMap has room for is refused, not sent.
func TestTooManyKinds(t *testing.T) {
	r := &coverage.Report{Member: "m", Digests: coverage.Digests{}}
	for k := range 20000 {
		r.Digests[schema.GroupKind{Group: "quite.a.long.group.example.com",
			Kind: fmt.Sprintf("RatherLongNameOfAKind%d", k)}] = map[slot.Slot]delivery.Digest{}
	}
	if _, err := r.Encode(); err == nil || !strings.Contains(err.Error(), "20000 kinds") {
		t.Errorf("%v, want an error that says how many kinds there are", err)
	}
}

// FuzzDecode: whatever can be read is written the same way again.
func FuzzDecode(f *testing.F) {
	data := encode(f, full())
	f.Add(data["member"], data["open"], data["objects"], data["waiting"], data["setup"], "1", "17")
	f.Add("m", "", "", "", "", "1", "0")
	f.Add("m", "0-9", "Kind\n0 1 00000000000000ff\n8 1 00000000000000ff\n", "", "a b\na c\n", "8", "1")
	f.Fuzz(func(t *testing.T, member, open, objects, waiting, setup, fold, serial string) {
		r, err := coverage.Decode(map[string]string{
			"member": member, "open": open, "objects": objects, "waiting": waiting, "setup": setup, "fold": fold,
			"serial": serial,
		})
		if err != nil {
			return
		}
		text, err := r.Encode()
		if err != nil {
			t.Skip(err)
		}
		again, err := coverage.Decode(text)
		if err != nil {
			t.Fatalf("%v\n%v", err, text)
		}
		if diff := cmp.Diff(text, encode(t, again)); diff != "" {
			t.Error(diff)
		}
	})
}
