package chaos

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// The test binary is also the members'.
func TestMain(m *testing.M) {
	if os.Getenv(rig.EnvOperator) != "" {
		os.Exit(rig.OperatorMain())
	}
	os.Exit(m.Run())
}

func options(t *testing.T) Options {
	t.Helper()
	return Options{
		Setup: rig.Setup{Objects: 60, Rate: 30, Slots: 32, Lease: 3 * time.Second, Seed: 1, Command: []string{os.Args[0]}},
		Keep:  t.TempDir(), Progress: t.Output(),
	}
}

// TestFence: a write that the network delivers too late is refused. Nothing else goes wrong, duties are done, and nothing
// is left behind. With SLOW=1 (make check WHAT=slow) a member also stops in the middle of sending a write, past its
// lease, and another one in that of a duty.
func TestFence(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	t.Parallel() // runs wait for leases most of the time
	o := options(t)
	o.Fence, o.Faults = true, []string{"held-write"}
	if os.Getenv("SLOW") != "" {
		o.Faults = append(o.Faults, "pause-3", "duty-pause")
	}
	o.Runs = len(o.Faults)
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	if len(report.Failing) > 0 {
		t.Errorf("%v", report.Failing)
	}
	if total := report.Total; total.Runs != o.Runs || total.LateWrites != 0 || total.Orphans+total.LostUpdates+total.DeletionsMissed+total.Overlaps+total.Leaks != 0 {
		t.Errorf("%+v", total)
	}
	for _, row := range report.Faults {
		refused := row.Refused
		if row.Fault == "duty-pause" {
			refused = row.Duties.Refused
		}
		if refused == 0 {
			t.Errorf("%s: the fence refused nothing", row.Fault)
		}
		if d := row.Duties; d.Runs == 0 || d.Writes == 0 || d.LongestGapMillis == 0 || d.LateWrites+d.Overlaps+d.Gaps+d.Stale != 0 {
			t.Errorf("%s: duties: %+v", row.Fault, d)
		}
	}
	if o.Runs > 1 && (report.Faults[1].PausedOverlaps == 0 || report.Faults[2].Duties.PausedOverlaps == 0) {
		t.Error("a process that stopped in the middle of a reconcile or a duty did not overlap with its successor: was it stopped at all?")
	}
	if left, err := os.ReadDir(o.Keep); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestNoFence: without a fence the same write is accepted, and the judge sees it. That is not what a failing run is.
// TestFence shows that the write is too late, since the fence refuses it.
func TestNoFence(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("only with SLOW=1: make check WHAT=slow")
	}
	t.Parallel() // runs wait for leases most of the time
	o := options(t)
	o.Runs, o.Faults = 1, []string{"held-write"}
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	if total := report.Total; len(report.Failing) > 0 || total.LateWrites != 1 || total.Refused != 0 {
		t.Errorf("%+v, failing %v; want one late write", total, report.Failing)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Setup: rig.Setup{Objects: 10, Rate: 1, Slots: 64, Lease: 3 * time.Second}, Runs: 1}
	o := good
	if err := o.validate(); err != nil || len(o.Faults) != len(faults)-2 {
		t.Errorf("%v, %d faults", err, len(o.Faults))
	}
	for want, spoil := range map[string]func(*Options){
		"runs":         func(o *Options) { o.Runs = 0 },
		"objects":      func(o *Options) { o.Objects = 0 },
		"rate":         func(o *Options) { o.Rate = 0 },
		"lease":        func(o *Options) { o.Lease = time.Second },
		"power of two": func(o *Options) { o.Slots = 100 },
		`fault "none"`: func(o *Options) { o.Faults = []string{"kill", "none"} },
	} {
		o := good
		spoil(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Faults have names of their own, and say what they are.
func TestFaults(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range faults {
		if seen[f.Name] || f.What == "" || f.Do == nil || Describe(f.Name) != f.What {
			t.Errorf("fault %q: twice, or without a word", f.Name)
		}
		seen[f.Name] = true
	}
	if Describe("none") != "" {
		t.Error("there is a fault none")
	}
}

func TestReport(t *testing.T) {
	o := Options{Setup: rig.Setup{Fence: true, Objects: 10, Lease: 3 * time.Second}}
	good := &judge.Verdict{Figures: judge.Figures{Operations: 5, Work: judge.Work{Refused: 1}, SlowestMillis: 1500, AwakeMillis: 3}}
	bad := &judge.Verdict{
		Figures:  judge.Figures{Operations: 7, Work: judge.Work{LateWrites: 2, LatestMillis: 40}, SlowestMillis: 500},
		Examples: []string{"late write: x"},
	}
	good.Duties = judge.DutyFigures{Runs: 4, Work: judge.Work{Refused: 1}, LongestGapMillis: 4400}
	bad.Duties = judge.DutyFigures{Runs: 5, Work: judge.Work{LateWrites: 1, Overlaps: 2}, LongestGapMillis: 9100, Gaps: 1, Stale: 3}
	all := []Result{
		{Number: 1, Fault: "kill", Seed: 1, Fence: true, Verdict: good}, {Number: 2, Fault: "pause-3", Seed: 2, Fence: true, Verdict: bad},
		{Number: 3, Fault: "kill", Seed: 3, Error: "no rest"},
	}
	r := newReport(&o, all)
	want := Row{Fault: "all", Runs: 3, NotJudged: 1, Figures: judge.Figures{
		Operations: 12, Work: judge.Work{LateWrites: 2, LatestMillis: 40, Refused: 1}, AwakeMillis: 3, SlowestMillis: 1500,
		Duties: judge.DutyFigures{Runs: 9, Work: judge.Work{LateWrites: 1, Refused: 1, Overlaps: 2}, LongestGapMillis: 9100, Gaps: 1, Stale: 3},
	}}
	require.Equal(t, "total", want, r.Total)
	if len(r.Failing) != 2 || len(r.Faults) != 2 || r.Faults[0].Runs != 2 {
		t.Errorf("failing %v, faults %v", r.Failing, r.Faults)
	}
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	for _, want := range []string{
		"with the fence", "1.5 s", "40 ms", "FAIL: 2 late writes", "late write: x", "not judged: no rest", "4.4 s", "9.1 s",
		"1 late writes of duties; 2 overlaps of duties", "1 duties that nobody did for too long; 3 runs of duties",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if text, err := json.Marshal(r); err != nil || !strings.Contains(string(text), `"run":2,"fault":"pause-3","seed":2`) {
		t.Errorf("%s, %v", text, err)
	}
	// Without a fence a late write is what a pause shows.
	all[1].Fence, bad.Duties.Overlaps, bad.Duties.Gaps, bad.Duties.Stale = false, 0, 0, 0
	if bad := all[1].Failures(); len(bad) > 0 {
		t.Errorf("without a fence: %q", bad)
	}
	// Of a member that is killed it is not.
	all[1].Fault = "kill"
	if bad := all[1].Failures(); len(bad) != 2 {
		t.Errorf("of a member that is killed: %q", bad)
	}
}
