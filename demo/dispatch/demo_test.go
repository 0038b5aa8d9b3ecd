package dispatch

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// The test binary is also the dispatchers' and the workers'.
func TestMain(m *testing.M) {
	if os.Getenv(Env) != "" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// TestDemo runs the whole demo, small. Other tests run beside it, so what the demo judges by time has ten times as long
// here: a key whose worker died waits until another worker is free.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	self, err := os.Executable()
	require.NoError(t, err)
	report, err := Run(t.Context(), Options{TakeLength: 4 * time.Second, StageOptions: rig.StageOptions{
		Objects: 60, Rate: 10, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second,
		Progress: t.Output(), Command: []string{self},
	}})
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	t.Log(text.String())
	report.OverdueBoundSeconds *= 10
	report.RetakenBoundSeconds *= 10
	report.TakeOverBoundSeconds *= 10
	if bad := report.Failures(); len(bad) > 0 {
		t.Errorf("%s", strings.Join(bad, "; "))
	}
	if report.Objects != 60 || report.Children != 180 || report.Takes < 200 || report.TakesLost < 2 || report.Deletions < 10 {
		t.Errorf("report: %+v", report)
	}
	// Of 256 slots, a fourth dispatcher gets 64; one of four gives up 64 and one of three 85 or 86; a rollout moves all. A
	// dispatcher that gets no processor for seconds may count as late, and then others have some of its slots in between.
	moved := map[string]int{}
	for _, p := range report.Phases {
		if moved[p.Name] = p.MovedSlots; p.Wait.P50 > p.Wait.P99 || p.Wait.P99 > p.Wait.Max || p.Takes == 0 || p.Changes == 0 {
			t.Errorf("phase %s: %+v", p.Name, p)
		}
	}
	for name, want := range map[string][2]int{
		"join": {64, 128}, "leave": {64, 128}, "crash": {85, 171}, "rollout": {256, 256}, "worker killed": {0, 64}, "worker stopped": {0, 64},
	} {
		if n := moved[name]; n < want[0] || n > want[1] {
			t.Errorf("%s: %d slots moved, want %d to %d", name, n, want[0], want[1])
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestOptions(t *testing.T) {
	good := Options{StageOptions: rig.StageOptions{Slots: 256}}
	if err := good.validate(); err != nil || good.LeaseDuration == 0 || good.TakeLength == 0 {
		t.Errorf("%+v, %v", good, err)
	}
	for want, spoil := range map[string]func(*Options){
		"objects -1":     func(o *Options) { o.Objects = -1 },
		"rate -1":        func(o *Options) { o.Rate = -1 },
		"power of two":   func(o *Options) { o.Slots = 100 },
		"at least 16":    func(o *Options) { o.Slots = 8 },
		"lease duration": func(o *Options) { o.LeaseDuration = -1 },
		"at least 2s":    func(o *Options) { o.TakeLength = time.Second },
	} {
		o := good
		spoil(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Each thing that is judged can fail, and then the text and the exit status tell.
func TestReport(t *testing.T) {
	good := Report{
		Settled:     rig.Settled{Objects: 10, Reconciled: 10, Children: 30, ChildrenRight: 30},
		Dispatchers: 3, Workers: 6, Slots: 256, Takes: 500, OverdueSeconds: 0.1, OverdueBoundSeconds: 1,
		TakesLost: 4, RetakenSeconds: 6.1, RetakenBoundSeconds: 7, TakenOverSeconds: 18, TakeOverBoundSeconds: 18.5,
		Deletions: 20, DeletionsInCrash: 5, DeletionsMissedInCrash: 2, RememberNames: true,
		Phases: []Phase{{Name: "join", MovedSlots: 64, Takes: 100, Wait: judge.Spread{P50: 1, P99: 12.3, Max: 12345}, Seconds: 3}},
	}
	var b bytes.Buffer
	if err := good.WriteText(&b); err != nil || len(good.Failures()) > 0 || strings.Contains(b.String(), "FAIL") {
		t.Errorf("%v, %v:\n%s", err, good.Failures(), b.String())
	}
	for _, want := range []string{"a dispatcher joins", "64", "12 ms", "12.3 s", "5 Websites were deleted", "none of 15 deletions"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	for what, spoil := range map[string]func(*Report){
		"2 pairs were of one key":      func(r *Report) { r.Overlaps = 2 },
		"of 0 takes":                   func(r *Report) { r.Takes = 0 },
		"for 1.5 s after its take had": func(r *Report) { r.OverdueSeconds = 1.5 },
		"seen by no worker":            func(r *Report) { r.KeysLost = 1 },
		"2 of 10 Websites":             func(r *Report) { r.Reconciled = 8 },
		"in their desired state":       func(r *Report) { r.ChildrenRight = 29 },
		"never were taken again":       func(r *Report) { r.KeysNotRetaken = 1 },
		"only after 7.1 s":             func(r *Report) { r.RetakenSeconds = 7.1 },
		"0 keys that workers had":      func(r *Report) { r.TakesLost = 0 },
		"only after 19.0 s; the bound": func(r *Report) { r.TakenOverSeconds = 19 },
		"only after 0.0 s; the bound":  func(r *Report) { r.TakenOverSeconds = 0 },
		"1 page was left behind":       func(r *Report) { r.DeletionsMissed = 1 },
	} {
		bad := good
		spoil(&bad)
		b.Reset()
		if err := bad.WriteText(&b); err != nil || !strings.Contains(b.String(), "FAIL") {
			t.Errorf("%s: %v:\n%s", what, err, b.String())
		}
		if f := bad.Failures(); len(f) != 1 || !strings.Contains(f[0], what) {
			t.Errorf("%s: failures %q", what, f)
		}
	}
}
