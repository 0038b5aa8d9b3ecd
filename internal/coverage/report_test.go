package coverage_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
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
		Owners: map[schema.GroupKind]map[schema.GroupKind]bool{cm: {website: true, {Kind: "Node"}: false}},
		Selections: map[schema.GroupKind][]sharding.Selection{
			website: {{Namespace: "a"}, {Namespace: "b"}, {Namespace: "b", Selectors: sharding.Selectors{Label: "tier in (a,b)", Field: `x="y"`}}},
			cm:      {{}},
		},
		Setup:   map[string]string{coverage.SettingLease: "15s", coverage.SettingFence: "2.5s"},
		Waiting: map[slot.Slot]time.Duration{7: 12 * time.Second},
		Moving: map[slot.Slot]time.Duration{
			9: time.Minute, 10: time.Minute, 12: time.Minute, slot.MaxCount + 3: time.Hour, // a duty
		},
		Loads: []coverage.Load{
			{Slots: slot.Range{First: 7, Last: 7}, Workers: 1.25}, {Slots: slot.Range{First: 16, Last: 21}, Workers: 0.04},
		},
		Trial: &coverage.Trial{Build: "v8", Began: 1763712000, Step: 1, Side: trial.Side{Objects: 120, Ailing: 5, Failing: 2, Tally: trial.Tally{
			Tries: 412, Seen: 300, Arrived: 110, ArrivedFailed: 4, Changed: 290, Failed: 3,
			Times: [trial.Sorts]trial.Times{{N: 280, Seconds: 8.25, Squares: 0.5, Logs: -1648.125, LogSquares: 6600.5}, 3: {N: 1, Logs: 1}},
		}}},
		Would: []coverage.Would{{Kind: cm, Objects: 12, Unlabelled: 5},
			{Kind: website, Objects: 412, Unlabelled: 400, Changed: 37, Over: 10 * time.Minute}},
		Blocked: []coverage.Blocked{{Controller: "my website", Workers: 1, Waiting: 21, For: 4 * time.Minute}},
		Health: coverage.Health{Hanging: 1, Failing: 12, Worst: []coverage.KeyHealth{{
			Controller: "my website", Kind: website, Object: types.NamespacedName{Namespace: "a", Name: "hello"}, Slot: 90,
			Running: time.Date(2026, 11, 23, 11, 50, 0, 0, time.UTC),
		}, {
			Controller: "node", Kind: schema.GroupKind{Kind: "Node"}, Object: types.NamespacedName{Name: "node-7"}, Slot: 3,
			Failures: 14, Panics: 2, Since: time.Date(2026, 11, 23, 11, 52, 0, 0, time.UTC),
			Last: time.Date(2026, 11, 23, 11, 59, 40, 0, time.UTC), Error: `denied: "x"`,
		}}},
		Handovers: []coverage.Handover{{
			Slots: slot.SetOf(slot.Range{First: 0, Last: 20}, slot.Range{First: 90, Last: 90}), Count: 22, From: "web-1-p3m9q",
			Cause: table.CauseHanded, Epoch: 1763712345071, Ended: time.Date(2026, 11, 23, 12, 0, 0, 7e6, time.UTC),
			Warm: 210 * time.Millisecond, Drain: 55 * time.Millisecond, Activate: 12 * time.Millisecond,
		}, {
			Duty: "collect-garbage", Count: 1, Cause: table.CauseExpelled, Epoch: 1763712331004,
			Ended: time.Date(2026, 11, 23, 11, 59, 40, 0, time.UTC), Activate: 2610 * time.Millisecond,
		}},
	}
	r.Open.AddRange(slot.Range{First: 0, Last: 84})
	r.Open.Add(90)
	r.Refused = []coverage.Refused{
		{Kind: schema.GroupKind{Kind: "Node"}, Since: time.Date(2026, 11, 23, 11, 50, 0, 0, time.UTC),
			Without: slot.SetOf(slot.Range{First: 3, Last: 5}, slot.Range{First: 90, Last: 90}), Error: `conversion "failed"`},
		{Kind: schema.GroupKind{Kind: "ConfigMap"}, Since: time.Date(2026, 11, 23, 11, 51, 0, 0, time.UTC), Error: "busy"},
	}
	r.Unlabelled = []coverage.Refused{{Kind: website, Since: time.Date(2026, 11, 23, 11, 55, 0, 0, time.UTC),
		Without: slot.SetOf(slot.Range{First: 40, Last: 40}), Error: "objects: 2, the first: denied"}}
	return r
}

func encode(t testing.TB, r *coverage.Report) map[string]string {
	t.Helper()
	data, err := r.Encode()
	require.NoError(t, err)
	return data
}

func TestReportsAreText(t *testing.T) {
	data := encode(t, full())
	want := "ConfigMap owned-by Node:cluster Website.web.example.com:namespaced\nWebsite.web.example.com\n0 12 " +
		"5f3ac0de00000001\n90 1 0000000000000007\n"
	if got := data["objects"]; got != want {
		t.Errorf("objects:\n%s\nwant:\n%s", got, want)
	}
	want = "1763712345071 2026-11-23T12:00:00.007Z handed web-1-p3m9q 210ms 55ms 12ms 22 0-20,90\n" +
		"1763712331004 2026-11-23T11:59:40.000Z expelled - 0s 0s 2.61s 1 duty:collect-garbage\n"
	if got := data["handovers"]; got != want {
		t.Errorf("handovers:\n%s\nwant:\n%s", got, want)
	}
	want = "ConfigMap 12 5 0 0\nWebsite.web.example.com 412 400 37 600\n"
	if got := data["would"]; got != want {
		t.Errorf("would:\n%s\nwant:\n%s", got, want)
	}
	want = `Node 2026-11-23T11:50:00Z 3-5,90 "conversion \"failed\""` + "\n" + `ConfigMap 2026-11-23T11:51:00Z - "busy"` + "\n"
	if got := data["refused"]; got != want {
		t.Errorf("refused:\n%s\nwant:\n%s", got, want)
	}
	want = "1 12\n" + `Website.web.example.com "a/hello" 90 2026-11-23T11:50:00Z 0 0 - - "my website" ""` + "\n" +
		`Node "/node-7" 3 - 14 2 2026-11-23T11:52:00Z 2026-11-23T11:59:40Z "node" "denied: \"x\""` + "\n"
	if got := data["health"]; got != want {
		t.Errorf("health:\n%s\nwant:\n%s", got, want)
	}
	back, err := coverage.Decode(data)
	require.NoError(t, err)
	require.Equal(t, "decoded", full(), back, cmp.AllowUnexported(slot.Set{}))
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
		"shadow words":     {"would", "ConfigMap 1 2 3\n", "line 1"},
		"shadow number":    {"would", "ConfigMap 1 2 3 -4\n", "line 1"},
		"health numbers":   {"health", "few\n", "line 1"},
		"health blocked":   {"blocked", "\"c\" 1 few 60\n", "line 1"},
		"health words":     {"health", "1 0\nNode \"/n\" 3\n", "3 words"},
		"health quotes":    {"health", "1 0\nNode \"/n 3\n", "not quoted text"},
		"health object":    {"health", "1 0\nNode n 3 - 0 0 - - c e\n", "namespace/name"},
		"health slot":      {"health", "1 0\nNode /n 4096 - 0 0 - - c e\n", "4096"},
		"health time":      {"health", "1 0\nNode /n 3 noon 0 0 - - c e\n", "noon"},
		"health failures":  {"health", "1 0\nNode /n 3 - few 0 - - c e\n", "few"},
		"refused words":    {"refused", "Node - \"x\"\n", "3 words"},
		"refused time":     {"refused", "Node noon - \"x\"\n", "noon"},
		"refused slots":    {"refused", "Node 2026-11-23T11:50:00Z 9-3 \"x\"\n", "9-3"},
		"handover words":   {"handovers", "1 2\n", "2 words"},
		"handover epoch":   {"handovers", "x 2026-11-23T12:00:00.007Z handed m 0s 0s 0s 1 3\n", "line 1"},
		"handover time":    {"handovers", "1 yesterday handed m 0s 0s 0s 1 3\n", "yesterday"},
		"handover cause":   {"handovers", "1 2026-11-23T12:00:00.007Z stolen m 0s 0s 0s 1 3\n", "stolen"},
		"handover phase":   {"handovers", "1 2026-11-23T12:00:00.007Z handed m 0s -1s 0s 1 3\n", "-1s"},
		"handover slots":   {"handovers", "1 2026-11-23T12:00:00.007Z handed m 0s 0s 0s 1 9-3\n", "9-3"},
		"handover count":   {"handovers", "1 2026-11-23T12:00:00.007Z handed m 0s 0s 0s 1 3-9\n", "number of slots"},
		"handover number":  {"handovers", "1 2026-11-23T12:00:00.007Z handed m 0s 0s 0s few 3-9\n", "few"},
		"handover duty":    {"handovers", "1 2026-11-23T12:00:00.007Z handed m 0s 0s 0s 1 duty:\n", "not a duty"},
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

// Builds that know nothing of a field report without it, and read reports that have it.
func TestReportsOfOtherBuilds(t *testing.T) {
	data := encode(t, full())
	delete(data, "handovers")
	delete(data, "health")
	delete(data, "blocked")
	data["a-field-of-the-future"] = "1 2 3"
	want := full()
	want.Handovers, want.Health, want.Blocked = nil, coverage.Health{}, nil
	got, err := coverage.Decode(data)
	require.NoError(t, err)
	require.Equal(t, "decoded", want, got, cmp.AllowUnexported(slot.Set{}))
}

// Handovers of slots that lie apart, from members with long names, leave out slots, and then the oldest handovers.
func TestHandoversAreBounded(t *testing.T) {
	r := full()
	r.Handovers = nil
	var odd slot.Set
	for s := slot.Slot(1); s < slot.MaxCount; s += 2 {
		odd.Add(s)
	}
	for n := range 100 {
		r.Handovers = append(r.Handovers, coverage.Handover{Slots: odd, Count: odd.Len(), From: strings.Repeat("m", 250),
			Cause: table.CauseHanded, Epoch: uint64(1000 - n), Ended: time.Unix(0, 0).UTC()})
	}
	data := encode(t, r)
	back, err := coverage.Decode(data)
	require.NoError(t, err)
	n := len(back.Handovers)
	if size := len(data["handovers"]); size > 8<<10 || n < 16 || n == 100 || back.Handovers[0].Epoch != 1000 {
		t.Fatalf("%d handovers in %d bytes, the first of epoch %d", n, size, back.Handovers[0].Epoch)
	}
	if h := back.Handovers[0]; h.Count != slot.MaxCount/2 || h.Slots.Len() != 32 || !h.Slots.Has(1) {
		t.Errorf("%d slots, of which %d are named: %v", h.Count, h.Slots.Len(), h.Slots)
	}
	// A report that is large for another reason is not refused because of them.
	r.Setup = map[string]string{"Large": strings.Repeat("x", 229<<10)}
	data = encode(t, r)
	back, err = coverage.Decode(data)
	if err != nil || len(back.Handovers) > 2 || coverage.Size(data) > 230<<10 {
		t.Errorf("%v, %d handovers", err, len(back.Handovers))
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
			r.Digests[kind(k)], census[kind(k)] = map[slot.Slot]sharding.Digest{}, map[slot.Slot]sharding.Digest{}
			for n := range slot.Slot(c.slots) {
				d := sharding.Digest{Objects: 25, Hashes: 0xdeadbeefdeadbeef * uint64(n+3) * uint64(k+1)}
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
		require.NoError(t, err)
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
			other.Digests[kind(k)] = map[slot.Slot]sharding.Digest{}
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
		census[kind(3)][last] = sharding.Digest{Objects: d.Objects + 1, Hashes: d.Hashes ^ 99}
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
			Kind: fmt.Sprintf("RatherLongNameOfAKind%d", k)}] = map[slot.Slot]sharding.Digest{}
	}
	_, err := r.Encode()
	require.ErrorSays(t, err, "20000 kinds")
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
		require.Equal(t, "encoded again", text, encode(t, again))
	})
}

// FuzzDecodeHandovers: whatever can be read is written the same way again.
func FuzzDecodeHandovers(f *testing.F) {
	data := encode(f, full())
	f.Add(data["handovers"])
	f.Fuzz(func(t *testing.T, handovers string) {
		r, err := coverage.Decode(map[string]string{"member": "m", "fold": "1", "serial": "1", "handovers": handovers})
		if err != nil {
			return
		}
		text := encode(t, r)
		again, err := coverage.Decode(text)
		if err != nil {
			t.Fatalf("%v\n%v", err, text)
		}
		require.Equal(t, "encoded again", text, encode(t, again))
	})
}
