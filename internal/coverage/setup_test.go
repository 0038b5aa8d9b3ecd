package coverage_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

var gadget = schema.GroupKind{Group: "example.com", Kind: "Gadget"}

// setUp returns a report of a member of the workload, with pairs of setting and value.
func setUp(member, workload string, settings ...string) *coverage.Report {
	r := &coverage.Report{Member: member, Digests: coverage.Digests{cm: {}},
		Owners: map[schema.GroupKind]map[schema.GroupKind]bool{}, Setup: map[string]string{}}
	if workload != "" {
		r.Setup[coverage.SettingWorkload] = workload
	}
	for i := 0; i < len(settings); i += 2 {
		r.Setup[settings[i]] = settings[i+1]
	}
	return r
}

func TestDifferences(t *testing.T) {
	shards := func(r *coverage.Report, kind schema.GroupKind, owners ...schema.GroupKind) *coverage.Report {
		r.Digests[kind] = nil
		for _, owner := range owners {
			if r.Owners[kind] == nil {
				r.Owners[kind] = map[schema.GroupKind]bool{}
			}
			r.Owners[kind][owner] = true
		}
		return r
	}
	lease := func(member, workload, lease, deadline string) *coverage.Report {
		return setUp(member, workload, coverage.SettingLease, lease, coverage.SettingDeadline, deadline)
	}
	for name, test := range map[string]struct {
		reports []*coverage.Report
		want    string
	}{
		"alike": {[]*coverage.Report{lease("a", "web", "15s", "10s"), lease("b", "web", "15s", "10s")},
			""},
		"another workload": {[]*coverage.Report{lease("a", "web", "15s", "10s"), lease("b", "gadgets", "15s", "10s")},
			""},
		"a version that tells not": {[]*coverage.Report{setUp("a", ""), lease("b", "web", "15s", "10s")}, ""},
		"a rollout": {
			[]*coverage.Report{lease("b", "web", "20s", "10s"), lease("a", "web", "15s", "10s"),
				lease("c", "web", "20s", "10s")},
			"members differ in LeaseDuration: 15s (a), 20s (b, c)",
		},
		"another workload's lease": {
			[]*coverage.Report{lease("a", "web", "15s", "10s"), lease("b", "gadgets", "20s", "10s")},
			"members differ in LeaseDuration: 15s (a), 20s (b); they belong to different workloads, gadgets and web: give one " +
				"of them another Options.Name",
		},
		"one whose workload nobody knows": {
			[]*coverage.Report{lease("a", "web", "15s", "10s"), lease("b", "", "20s", "10s")},
			"members differ in LeaseDuration: 15s (a), 20s (b)",
		},
		"leader election": {
			[]*coverage.Report{setUp("a", "web", coverage.SettingElection, "operators/web"), setUp("c", "web"),
				setUp("b", "gadgets", coverage.SettingElection, "operators/old")},
			"members differ in Election: operators/old (b), operators/web (a)",
		},
		"a lease that is too short": {
			[]*coverage.Report{lease("a", "web", "15s", "10s"), lease("b", "web", "10s", "6s")},
			"members differ in LeaseDuration: 10s (b), 15s (a)\nmembers differ in RenewDeadline: 10s (a), 6s (b)\nmembers " +
				"differ in RenewDeadline and LeaseDuration: RenewDeadline 10s (a), LeaseDuration 10s (b); a member would still " +
				"work when another one gives its slots away: RenewDeadline must be shorter than the LeaseDuration of every member",
		},
		"a write that is too long": {
			[]*coverage.Report{setUp("a", "", coverage.SettingWrite, "2s", coverage.SettingFence, "2.5s"),
				setUp("b", "", coverage.SettingWrite, "2s", coverage.SettingFence, "2s")},
			"members differ in FenceDelay: 2.5s (a), 2s (b)\nmembers differ in WriteTimeout and FenceDelay: WriteTimeout 2s " +
				"(a, b), FenceDelay 2s (b); a write of an expelled member could still come when the new owner works: WriteTimeout " +
				"must be shorter than the FenceDelay of every member",
		},
		"kinds": {
			[]*coverage.Report{shards(setUp("a", "web"), gadget), shards(setUp("b", "web"), gadget, cm), setUp("c", "web")},
			"members differ in kind Gadget.example.com: not sharded (c), sharded by its own key (a), sharded by its owner " +
				"ConfigMap (b)",
		},
		"many": {
			[]*coverage.Report{lease("a", "", "1s", "0s"), lease("b", "", "2s", "0s"), lease("c", "", "2s", "0s"),
				lease("d", "", "2s", "0s"), lease("e", "", "2s", "0s"), lease("f", "", "2s", "0s")},
			"members differ in LeaseDuration: 1s (a), 2s (b, c, d and 2 more)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range coverage.Differences(test.reports) {
				got = append(got, d.String())
			}
			require.Equal(t, "findings", test.want, strings.Join(got, "\n"))
		})
	}
}

// A member waits for those with which it cannot work, but not where its like work beside them already.
func TestConflicts(t *testing.T) {
	web := func(member string) *coverage.Report { return setUp(member, "web", coverage.SettingRetry, "2s") }
	other := func(member string) *coverage.Report { return setUp(member, "other", coverage.SettingRetry, "1s") }
	next := func(member string) *coverage.Report { return setUp(member, "web", coverage.SettingRetry, "1s") }
	for name, test := range map[string]struct {
		joiner  *coverage.Report
		reports []*coverage.Report
		want    int
	}{
		"first":                {web("w-0"), nil, 0},
		"second":               {web("w-1"), []*coverage.Report{web("w-0")}, 0},
		"a rollout":            {next("w-1"), []*coverage.Report{web("w-0")}, 0},
		"another workload":     {other("o-0"), []*coverage.Report{web("w-0"), web("w-1")}, 1},
		"side by side already": {web("w-1"), []*coverage.Report{web("w-0"), other("o-0")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := coverage.Conflicts(test.joiner, test.reports); len(got) != test.want {
				t.Errorf("conflicts %v, want %d", got, test.want)
			}
		})
	}
}

// What members differ in counts once it cannot be a rollout any more.
func TestMixedMembers(t *testing.T) {
	const clash, lasting = "they belong to different workloads", "no rollout lasts that long"
	type step struct {
		at      time.Duration // min
		ids     string        // of the members
		want    string        // what the finding says; empty: there is none
		pending int
	}
	for name, test := range map[string]struct {
		workload string // of those whose names begin with n; the others are of web
		steps    []step
	}{
		"a rollout": {"web", []step{{0, "o1 o2", "", 0}, {5, "n1 o1 o2", "", 1}, {14, "n1 n2 o2", "", 1},
			{23, "n1 n2 o2", "", 1}, {25, "n1 n2", "", 0}}},
		"one that stays": {"web", []step{{0, "n1 o1", "", 1}, {9, "n1 o1", "", 1}, {10, "n1 o1", lasting, 0},
			{11, "n1 n2", "", 0}}},
		"a crash loop": {"web", []step{{0, "n1 o1", "", 1}, {9, "n2 o1", "", 1}, {18, "n3 o1", "", 1},
			{59, "n4 o1", "", 1}, {60, "n5 o1", lasting, 0}}},
		"two workloads": {"gadgets", []step{{0, "n1 o1", "", 1}, {1, "n1 o1", clash, 0}, {2, "n2 o1", clash, 0},
			{3, "o1", "", 0}}},
		"over in between": {"web", []step{{0, "n1 o1", "", 1}, {5, "n1", "", 0}, {6, "n1 o1", "", 1}, {15, "n1 o1", "", 1},
			{16, "n1 o1", lasting, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := coverage.NewTracker(coverage.BoundsOf(15*time.Second, 2500*time.Millisecond))
			for i, s := range test.steps {
				tab := table.New(4, slot.KeyName, 9)
				var reports []*coverage.Report
				for _, id := range strings.Fields(s.ids) {
					tab.Put(table.Member{ID: id, Pod: id, Weight: 1, MinFormat: 1, MaxFormat: 1})
					r := setUp(id, "web", coverage.SettingRetry, "2s")
					if id[0] == 'n' {
						r = setUp(id, test.workload, coverage.SettingRetry, "1s")
						r.Digests[gadget] = nil
					}
					r.Serial = uint64(i + 1)
					reports = append(reports, r)
				}
				var got []string
				for _, f := range tracker.Look(s.at*time.Minute, tab, reports, nil) {
					if f.What == coverage.Mixed {
						got = append(got, f.String())
					}
				}
				settings := 0
				for _, text := range got {
					if s.want != "" && strings.Contains(text, s.want) {
						settings++
					}
				}
				if s.want == "" && len(got) > 0 || s.want != "" && (len(got) != 2 || settings != 2) {
					t.Errorf("at %d min: %q, want two with %q", s.at, got, s.want)
				}
				if n := len(tracker.Rollout()); n != 2*s.pending {
					t.Errorf("at %d min: %d may be a rollout's, want %d", s.at, n, 2*s.pending)
				}
			}
		})
	}
}

// Objects of a kind that a rollout brings are no finding before it has to be over.
func TestUnreadInARollout(t *testing.T) {
	tracker := coverage.NewTracker(coverage.BoundsOf(15*time.Second, 2500*time.Millisecond))
	census := coverage.Digests{cm: {}, gadget: {2: {Objects: 1, Hashes: 7}}}
	for i := range 5 {
		b := opens("b", uint64(i+1), 2, 3)
		a := opens("a", uint64(i+1), 0, 1)
		a.Digests[gadget] = nil
		var got []coverage.What
		at := time.Duration(i) * 6 * time.Minute
		for _, f := range tracker.Look(at, pair(6), []*coverage.Report{a, b}, census) {
			got = append(got, f.What)
		}
		want := "[]"
		switch {
		case i == 2:
			want = "[mixed]"
		case i > 2:
			want = "[mixed unread]"
		}
		if fmt.Sprint(got) != want {
			t.Errorf("after %v: %v, want %s", at, got, want)
		}
		if i == 1 && !tracker.Settled() {
			t.Error("rota verify would not end before the rollout does")
		}
	}
}
