package demo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/dashboard"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// The test binary is also the replicas'.
func TestMain(m *testing.M) {
	if os.Getenv(rig.EnvOperator) != "" {
		os.Exit(rig.OperatorMain())
	}
	os.Exit(m.Run())
}

// small runs a story with few Websites, and checks the report and that nothing is left behind. How long things take is
// not checked: other tests run beside this one.
func small(ctx context.Context, t *testing.T, o Options) *Report {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	self, err := os.Executable()
	require.NoError(t, err)
	o.Slots, o.LeaseDuration, o.Progress, o.Command = slot.DefaultCount, 6*time.Second, t.Output(), []string{self}
	o.Objects, o.Rate = cmp.Or(o.Objects, 60), cmp.Or(o.Rate, 10)
	o.Baseline = cmp.Or(o.Baseline, time.Second)
	report, err := Run(ctx, o)
	require.NoError(t, err)
	report.TakeOverBoundSeconds *= 10
	var text strings.Builder
	require.NoError(t, report.WriteText(&text))
	t.Log(text.String())
	if bad := report.Failures(); len(bad) > 0 || strings.Contains(text.String(), "FAIL") {
		t.Errorf("%s", strings.Join(bad, "; "))
	}
	if report.Objects != o.Objects || report.Children != 3*o.Objects || report.Migrated != (report.ForeignWrites == nil) {
		t.Errorf("report: %+v", report)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return report
}

// TestDemo runs the demo's own story. SlotLabel is the delivery that writes to objects, so the one with most to check;
// SLOW=1 (make check WHAT=slow) runs the others, too.
func TestDemo(t *testing.T) {
	kinds := []sharding.Mode{sharding.SlotLabel}
	if os.Getenv("SLOW") != "" {
		kinds = append(kinds, sharding.Filter, sharding.ShardSelector)
	}
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) { testDemo(t, small(t.Context(), t, Options{Delivery: kind})) })
	}
}

func testDemo(t *testing.T, report *Report) {
	t.Helper()
	// Of 256 slots, a fourth replica gets 64; one of four gives up 64 and one of three 85 or 86; a rollout moves all. A
	// replica that gets no processor for seconds may count as late, and then others have some of its slots in between.
	want := []struct {
		name                    string
		fewest, most, tableSize int
	}{{"join", 64, 128, 40}, {"leave", 64, 128, 80}, {"crash", 85, 171, 80}, {"rollout", 256, 256, 200}}
	if len(report.Phases) != len(want) || report.Members != 3 || report.TakenOverSeconds == 0 {
		t.Fatalf("report: %+v", report)
	}
	for i, p := range report.Phases {
		w := want[i]
		if p.Name != w.name || p.MovedSlots < w.fewest || p.MovedSlots > w.most || p.MovesPerSlot < 1 || p.MovesPerSlot > 2 {
			t.Errorf("phase %s: %d slots moved %.2f times, want %s, %d to %d", p.Name, p.MovedSlots, p.MovesPerSlot, w.name,
				w.fewest, w.most)
		}
		if p.ObjectWrites == nil || *p.ObjectWrites != 0 || p.TableWrites < 1 || p.TableWrites > w.tableSize ||
			p.ListedObjects == nil {
			t.Errorf("phase %s: %+v", p.Name, p)
		}
		// Changes wait for the dead one's lease to end in the crash, and for minutes in no phase.
		if p.Stall.P50 > p.Stall.P99 || p.Stall.P99 > p.Stall.Max || p.Stall.Max > 60_000 ||
			p.Name == "crash" && p.Stall.Max < 1000 {
			t.Errorf("phase %s: stall %+v", p.Name, p.Stall)
		}
	}
	// The replicas apply their children's labels with the rest; only objects of others' making need a write for them.
	if n := *report.LabelWritesBefore; (n > 0) != (report.Delivery == sharding.SlotLabel) {
		t.Errorf("%s: %d writes of labels before anything moved", report.Delivery, n)
	}
}

// TestMigration goes from leader election to a rota and back.
func TestMigration(t *testing.T) {
	slow(t)
	if report := small(t.Context(), t, Options{Story: Migration}); len(report.Phases) != 2 {
		t.Errorf("report: %+v", report)
	}
}

// TestCanary has a canary go back by itself whose reconciles fail for some of the objects, and one that is slow, each
// with a kill. The good one, which takes longer, is in the whole story: rota-demo --canary.
func TestCanary(t *testing.T) {
	slow(t)
	story := Canaries(Canary{Steps: []int{8, 100}, Fails: 300, BadOnly: true})
	if report := small(t.Context(), t, Options{Story: story, StageOptions: rig.StageOptions{Objects: 400}}); len(report.Story) != 2 {
		t.Errorf("report: %+v", report)
	}
}

func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("SLOW") == "" {
		t.Skip("takes minutes: SLOW=1 runs it (make check WHAT=slow)")
	}
}

// TestInterrupted: before the audience's turn, the end of the context ends the demo, and there is no report.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	open := func(ctx context.Context, _ *rest.Config, _, _ string, r dashboard.Replicas) (*dashboard.Server, error) {
		cancel()
		return dashboard.Listen(ctx, "127.0.0.1:0", dashboard.Options{Replicas: r})
	}
	report, err := Run(ctx, Options{Story: ByHand(open), StageOptions: rig.StageOptions{
		Slots: 256, Progress: t.Output(), Command: []string{"none"},
	}})
	if report != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestReport(t *testing.T) {
	none, one := 0, 1
	r := &Report{
		Settled: rig.Settled{Objects: 10, Reconciled: 10, Children: 30, ChildrenRight: 30},
		Members: 3, Slots: 256, ForeignWrites: &none,
		TakenOverSeconds: 17.7, TakeOverBoundSeconds: 21.5,
		Phases: []Phase{{
			Name: "join", MovedSlots: 64, MovesPerSlot: 1, ObjectWrites: &none, Stall: judge.Spread{P99: 12.3, Max: 12345},
		}},
	}
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil || len(r.Failures()) > 0 {
		t.Errorf("%v, %v:\n%s", err, r.Failures(), b.String())
	}
	for _, want := range []string{"a replica joins", "64", "1.00", "12 ms", "12.3 s", "?"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	for what, spoil := range map[string]func(*Report){
		"two replicas at once":   func(r *Report) { r.Overlaps = 2 },
		"did not own":            func(r *Report) { r.ForeignWrites = &one },
		"owner":                  func(r *Report) { r.UnownedAtEnd = 1 },
		"the bound is 21.5 s":    func(r *Report) { r.TakenOverSeconds = 22 },
		"2 of 10 Websites":       func(r *Report) { r.Reconciled = 8 },
		"left behind":            func(r *Report) { r.DeletionsMissed = 1 },
		"in their desired state": func(r *Report) { r.ChildrenRight = 29 },
		"no Website":             func(r *Report) { r.ChildrenStray = 1 },
		"duty is not done":       func(r *Report) { r.DutiesUndone = 1 },
		"a duty was done by two": func(r *Report) { r.DutyOverlaps = 1 },
		"the other side":         func(r *Report) { r.Migrated, r.SidesOverlap = true, 1 },
		"it flapped":             func(r *Report) { r.Story = []judge.Claim{{No: "it flapped"}} },
	} {
		bad := *r
		spoil(&bad)
		if f := bad.Failures(); len(f) != 1 || !strings.Contains(f[0], what) {
			t.Errorf("%s: failures %q", what, f)
		}
	}
}
