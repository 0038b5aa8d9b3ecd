package demo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// The test binary is also the replicas'.
func TestMain(m *testing.M) {
	if os.Getenv(EnvOperator) != "" {
		os.Exit(OperatorMain())
	}
	os.Exit(m.Run())
}

// TestDemo runs the whole demo, small. SlotLabel is the delivery that writes to objects, so the one with most to check;
// SLOW=1 (make check WHAT=slow) runs the story with the others, too. How long things take is not checked: other tests
// run beside this one.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	kinds := []sharding.Mode{sharding.SlotLabel}
	if os.Getenv("SLOW") != "" {
		kinds = append(kinds, sharding.Filter, sharding.ShardSelector)
	}
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) { testDemo(t, kind) })
	}
}

func testDemo(t *testing.T, kind sharding.Mode) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{
		Objects: 60, Rate: 10, Delivery: kind, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second, Baseline: time.Second,
		Progress: t.Output(), Command: []string{self},
	})
	if err != nil {
		t.Fatal(err)
	}
	report.TakeOverBoundSeconds *= 10
	if bad := report.Failures(); len(bad) > 0 {
		t.Errorf("%s", strings.Join(bad, "; "))
	}
	if report.Objects != 60 || report.Reconciled != 60 || report.Children != 180 || report.Members != 3 || report.ForeignWrites == nil {
		t.Errorf("report: %+v", report)
	}
	// Of 256 slots, a fourth replica gets 64; one of four gives up 64 and one of three 85 or 86; a rollout moves all. A
	// replica that gets no processor for seconds may count as late, and then others have some of its slots in between.
	want := []struct {
		name           string
		fewest, most   int
		mostMoves      float64
		mostTableWrite int
	}{{"join", 64, 128, 2, 40}, {"leave", 64, 128, 2, 80}, {"crash", 85, 171, 2, 80}, {"rollout", 256, 256, 2, 200}}
	if len(report.Phases) != len(want) {
		t.Fatalf("%d phases, want %d", len(report.Phases), len(want))
	}
	for i, p := range report.Phases {
		w := want[i]
		if p.Name != w.name || p.MovedSlots < w.fewest || p.MovedSlots > w.most || p.MovesPerSlot < 1 || p.MovesPerSlot > w.mostMoves {
			t.Errorf("phase %s: %d slots moved %.2f times, want %s, %d to %d, at most %.1f times", p.Name, p.MovedSlots, p.MovesPerSlot, w.name, w.fewest, w.most, w.mostMoves)
		}
		if p.ObjectWrites == nil || *p.ObjectWrites != 0 || p.TableWrites < 1 || p.TableWrites > w.mostTableWrite || p.ListedObjects == nil {
			t.Errorf("phase %s: %+v", p.Name, p)
		}
		if p.Stall.P50 > p.Stall.P99 || p.Stall.P99 > p.Stall.Max {
			t.Errorf("phase %s: stall %+v", p.Name, p.Stall)
		}
		// No more than that they can be what they are said to be: milliseconds, of changes that waited for the dead one's
		// lease to end in the crash, and for nobody for minutes in any phase.
		if p.Stall.Max > 60_000 || p.Name == "crash" && p.Stall.Max < 1000 {
			t.Errorf("phase %s: the longest stall is %v ms", p.Name, p.Stall.Max)
		}
	}
	received := 0
	for _, p := range report.Phases {
		received += p.ReceivedObjects
		// A child that a recreated namesake adopts has the label of another UID for a moment.
		if p.ForeignObjects > 0 && kind != sharding.ShardSelector {
			t.Errorf("phase %s: members received %d objects that they had not asked for", p.Name, p.ForeignObjects)
		}
	}
	if received == 0 {
		t.Error("members received nothing")
	}
	t.Logf("%s writes of labels before anything moved", orUnknown(report.LabelWritesBefore))
	// The replicas apply their children's labels with the rest; only objects of others' making need a write for them.
	if n := report.LabelWritesBefore; n == nil || (*n > 0) != (kind == sharding.SlotLabel) {
		t.Errorf("%s: %s writes of labels before anything moved", kind, orUnknown(n))
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestMigration goes from leader election to a rota and back, small. How long it takes is not checked.
func TestMigration(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("takes a minute: SLOW=1 runs it (make check WHAT=slow)")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{
		Migrate: true, Objects: 60, Rate: 10, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second, Baseline: time.Second,
		Progress: t.Output(), Command: []string{self},
	})
	if err != nil {
		t.Fatal(err)
	}
	if bad := report.Failures(); len(bad) > 0 {
		t.Errorf("%s", strings.Join(bad, "; "))
	}
	var b bytes.Buffer
	if err := report.WriteText(&b); err != nil || strings.Contains(b.String(), "FAIL") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	t.Log(b.String())
	if report.Objects != 60 || report.Reconciled != 60 || len(report.Phases) != 2 {
		t.Errorf("report: %+v", report)
	}
	for want, spoil := range map[string]func(*Report){
		"two replicas at once": func(r *Report) { r.Overlaps = 1 },
		"other side":           func(r *Report) { r.SidesOverlap = 1 },
		"not up to date":       func(r *Report) { r.Reconciled-- },
	} {
		bad := *report
		spoil(&bad)
		if f := bad.Failures(); len(f) != 1 || !strings.Contains(f[0], want) {
			t.Errorf("%s: failures %q", want, f)
		}
	}
}

// TestReplicaKilledFromAShell kills one that the story has not come to. The run is judged all the same.
func TestReplicaKilledFromAShell(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("takes a minute: SLOW=1 runs it (make check WHAT=slow)")
	}
	if runtime.GOOS != "linux" {
		t.Skip("finds the replicas in /proc")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	killed := 0
	report, err := Run(t.Context(), Options{
		Objects: 60, Rate: 10, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second, Baseline: time.Second,
		Command: []string{self}, Progress: writer(func(line []byte) {
			said.Write(line)
			if killed == 0 && bytes.Contains(line, []byte("a replica joins")) {
				killed = killAReplica(t)
			}
		}),
	})
	t.Log(said.String())
	if err != nil || killed == 0 {
		t.Fatalf("killed process %d: %v", killed, err)
	}
	bad := report.Failures()
	if len(bad) != 1 || !strings.HasPrefix(bad[0], "replica web-") || !strings.Contains(bad[0], "(signal: killed)") {
		t.Errorf("failures %q, want the killed replica alone", bad)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil || strings.Count(text.String(), "  FAIL  ") != 1 {
		t.Errorf("%v:\n%s", err, text.String())
	}
	if report.Reconciled != report.Objects || report.UnownedAtEnd > 0 {
		t.Errorf("what it had is not taken over: %+v", report)
	}
	if !strings.Contains(said.String(), "the story ends early") || strings.Contains(said.String(), "goroutine") {
		t.Error("it is not told in one line")
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// killAReplica kills the first child of this process that is a replica, and returns its id.
func killAReplica(t *testing.T) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	if err != nil {
		t.Error(err)
	}
	for _, path := range lists {
		children, _ := os.ReadFile(path) // a thread may be gone
		for _, child := range strings.Fields(string(children)) {
			environment, _ := os.ReadFile("/proc/" + child + "/environ")
			id, err := strconv.Atoi(child)
			if err == nil && bytes.Contains(environment, []byte("POD_NAME=web-")) {
				if err := syscall.Kill(id, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				return id
			}
		}
	}
	t.Error("no replica runs")
	return 0
}

func TestOptions(t *testing.T) {
	good := Options{Objects: 10, Rate: 1, Slots: 256}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Options){
		"objects":        func(o *Options) { o.Objects = -1 },
		"rate":           func(o *Options) { o.Rate = -1 },
		"power of two":   func(o *Options) { o.Slots = 100 },
		"at least 16":    func(o *Options) { o.Slots = 8 },
		"only with":      func(o *Options) { o.AuditLogs = []string{"x"} },
		"at most 100000": func(o *Options) { o.Objects = 1 << 20 },
	} {
		o := good
		spoil(&o)
		if err := o.validate(); name != "at most 100000" && (err == nil || !strings.Contains(err.Error(), name)) || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReportText(t *testing.T) {
	none, one := 0, 1
	r := &Report{
		Objects: 10, Members: 3, Slots: 256, Reconciled: 10, Children: 30, ChildrenRight: 30, ForeignWrites: &none,
		TakenOverSeconds: 17.7, TakeOverBoundSeconds: 21.5,
		Phases: []Phase{{Name: "join", MovedSlots: 64, MovesPerSlot: 1, ObjectWrites: &none, Stall: verdict.Spread{P99: 12.3, Max: 12345}, Seconds: 3}},
	}
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil || len(r.Failures()) > 0 || strings.Contains(b.String(), "FAIL") {
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
	} {
		bad := *r
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

func TestScene(t *testing.T) {
	s := &scene{title: "a replica joins: web-4", slots: 256, unowned: 3, load: "10 Websites", rows: []row{
		{pod: "web-1", build: "v1", owned: 85, going: 21, perSecond: 12},
		{pod: "web-4", build: "v1", coming: 64, note: "leaving"},
	}}
	for _, width := range []int{20, 60, 80, 200} {
		lines := s.lines(width)
		if len(lines) != 5 {
			t.Errorf("width %d: %d lines", width, len(lines))
		}
		for _, line := range lines {
			if n := len([]rune(line)); n >= width {
				t.Errorf("width %d: a line of %d: %s", width, n, line)
			}
		}
	}
	text := strings.Join(s.lines(100), "\n")
	for _, want := range []string{"web-1", "85 slots -21", "0 slots +64", "░", "▒", "3 slots without owner", "leaving"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestViewWithoutTerminal: plain lines, no escape codes.
func TestViewWithoutTerminal(t *testing.T) {
	var b bytes.Buffer
	v := newView(&b)
	v.title("joining")
	v.draw(&scene{})
	v.clear()
	if got := b.String(); !strings.Contains(got, "joining") || strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}

// TestCanary has a canary go back by itself whose reconciles fail for some of the objects, and one that is slow, each
// with a kill. The good one, which takes longer, is in the whole story: rota-demo --canary.
func TestCanary(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("takes a minute: SLOW=1 runs it (make check WHAT=slow)")
	}
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{
		Objects: 400, Rate: 10, Delivery: sharding.Filter, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second,
		Baseline: time.Second, Progress: t.Output(), Command: []string{self},
		Canary: &Canary{Steps: []int{8, 100}, Fails: 300, BadOnly: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if bad := report.Failures(); len(bad) > 0 {
		t.Errorf("%s", strings.Join(bad, "; "))
	}
	if len(report.Trials) != 2 || report.ForeignWrites == nil {
		t.Errorf("report: %+v", report)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
