package skew

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/demo"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig"
)

// root is the repository's, as the tests see it.
const root = "../../.."

// chosen returns the releases to test with: those of BEFORE, or the one whose commit begins with the variable's digits.
func chosen(t *testing.T) []Release {
	t.Helper()
	if testing.Short() || os.Getenv("SLOW") == "" {
		t.Skip("builds releases before this one and runs them: make check WHAT=skew")
	}
	all, err := Before()
	require.NoError(t, err)
	digits := os.Getenv("BEFORE")
	some := slices.DeleteFunc(all, func(r Release) bool { return !strings.HasPrefix(r.Commit, digits) })
	if len(some) == 0 {
		t.Fatalf("BEFORE=%s: test/rig/skew/BEFORE names no such commit", digits)
	}
	return some
}

// withEach runs a test with the programs of each chosen release, and with the path of this test binary.
func withEach(t *testing.T, test func(t *testing.T, old *Build, self string)) {
	t.Helper()
	for _, release := range chosen(t) {
		t.Run(release.Commit[:short], func(t *testing.T) {
			old, err := Programs(t.Context(), root, release)
			require.NoError(t, err)
			self, err := os.Executable()
			require.NoError(t, err)
			test(t, old, self)
		})
	}
}

// now builds this release's command.
func now(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rota")
	require.NoError(t, run(t.Context(), root, "go", "build", "-o", path, "./cmd/rota"))
	return path
}

// TestReplicas rolls an operator from each release before this one to this one and back, under load, with a member
// killed while members of both are there. Before, between and after, the commands of both releases look at the rota and
// change it. The judge of the demo says what came of the objects.
func TestReplicas(t *testing.T) {
	withEach(t, func(t *testing.T, old *Build, self string) {
		s := &story{
			T: t, member: []string{self}, oldMember: []string{old.Demo, demo.OperatorArgument},
			new: program{"new rota", now(t)}, old: program{"old rota", old.Rota},
		}
		report, err := demo.Run(t.Context(), demo.Options{
			Delivery: sharding.SlotLabel, Baseline: time.Second, Story: s.tell, StageOptions: rig.StageOptions{
				Objects: 60, Rate: 10, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second,
				Progress: t.Output(), Command: s.oldMember,
			},
		})
		require.NoError(t, err)
		report.TakeOverBoundSeconds *= 10 // other tests may run beside this one
		if bad := report.Failures(); len(bad) > 0 {
			t.Errorf("%s", strings.Join(bad, "; "))
		}
		if len(report.Phases) != 2 || report.ForeignWrites == nil || report.TakenOverSeconds == 0 {
			t.Errorf("report: %+v", report)
		}
		var text strings.Builder
		require.NoError(t, report.WriteText(&text))
		t.Log(text.String())
	})
}

// program is a command rota.
type program struct{ name, path string }

// story is what happens to a rota whose members are of the old release at first.
type story struct {
	*testing.T
	member, oldMember []string
	new, old          program
	show              *demo.Show
	kube              kubernetes.Interface
}

func (s *story) tell(ctx context.Context, show *demo.Show) (err error) {
	s.show = show
	if s.kube, err = kubernetes.NewForConfig(show.Cluster.Config); err != nil {
		return err
	}
	s.Log("All members are of the old release.")
	s.works(ctx, s.new)
	s.refusesPlaces(ctx)
	if err := s.withOrders(ctx); err != nil {
		return err
	}
	if err := show.Update(ctx, rig.Update{Build: "new", Command: s.member, Kill: true, Mixed: s.mixed}); err != nil {
		return err
	}
	s.Log("All members are of this release.")
	s.works(ctx, s.old)
	if err := s.places(ctx); err != nil {
		return err
	}
	if err := show.Update(ctx, rig.Update{
		Build: "old", Command: s.oldMember, MayEnd: true, Kill: true, Mixed: s.rolledBack,
	}); err != nil {
		return err
	}
	s.works(ctx, s.new)
	return nil
}

// answered is what a command that works says: exit code and a regular expression.
type answered struct {
	line string
	code int
	want string
}

// works has a command do all that both releases know: look, drain, pause, rebalance, save.
func (s *story) works(ctx context.Context, p program) {
	pod := s.show.Fleet.Pods()[0]
	archive := filepath.Join(s.TempDir(), "dump.tar.gz")
	for _, a := range []answered{
		{"status", 0, pod},
		{"status -o json", 0, `"members"`},
		{"check --service-account " + demo.Namespace + "/none", 0, "√ .*the table is valid"},
		{"verify --every 2s", 0, ""},
		{"rebalance --dry-run", 0, ""},
		{"drain " + pod + " --wait --reason skew", 0, ""},
		{"status", 0, "drained"},
		{"undrain " + pod, 0, ""},
		{"pause --reason skew", 0, ""},
		{"status", 0, "paused"},
		{"resume", 0, ""},
		{"rebalance --wait", 0, ""},
		{"dump --file " + archive, 0, ""},
		{"uninstall --yes", 1, "these members are alive"},
	} {
		s.ask(ctx, p, a.line, a.code, a.want)
	}
	s.who(ctx, p)
	if info, err := os.Stat(archive); err != nil || info.Size() < 1000 {
		s.Errorf("%s dump: %v, %v", p.name, info, err)
	}
	if err := s.show.Quiet(ctx); err != nil {
		s.Errorf("after the orders of %s: %v", p.name, err)
	}
}

// who asks for the member of a Website that is there. The load may replace it meanwhile.
func (s *story) who(ctx context.Context, p program) {
	for range 5 {
		sites, err := s.show.Cluster.Websites(ctx)
		if err != nil {
			s.Error(err)
			return
		}
		line := "who website/" + sites[len(sites)-1].Name
		if out, code := s.tried(ctx, p, line); code == 0 && strings.Contains(out, "works on Website") {
			s.Logf("%s %s: 0", p.name, line)
			return
		} else if code != 4 {
			s.Errorf("%s %s: exit code %d:\n%s", p.name, line, code, out)
			return
		}
	}
	s.Errorf("%s who: the Websites change too fast", p.name)
}

// refusesPlaces has this release's command ask old members for what they do not know. Nothing changes.
func (s *story) refusesPlaces(ctx context.Context) {
	before := s.text(ctx)
	for _, line := range []string{
		"canary start --build v9 --share 5% --expect", "pin " + demo.SitesNamespace + "/site-00000 --to pool=large --expect",
	} {
		s.ask(ctx, s.new, line, 1, `some members run an older release .* does not support a canary or a pin: .*update them first`)
	}
	s.ask(ctx, s.new, "canary status", 4, "there is no canary")
	if after := s.text(ctx); after["orders"] != before["orders"] || after["pins"] != before["pins"] {
		s.Errorf("the refused orders changed the table:\n%v\n%v", before, after)
	}
}

// withOrders has the old command look at a table in which this release's command has paused moves and drained a member.
func (s *story) withOrders(ctx context.Context) error {
	pod := s.show.Fleet.Pods()[1]
	s.ask(ctx, s.new, "drain "+pod+" --wait --reason skew", 0, "")
	s.ask(ctx, s.new, "pause --reason skew", 0, "")
	s.ask(ctx, s.old, "status", 0, "drained")
	s.ask(ctx, s.new, "resume", 0, "")
	s.ask(ctx, s.new, "undrain "+pod, 0, "")
	return s.show.Quiet(ctx)
}

// mixed is while the first member of this release is there, and all of the old one.
func (s *story) mixed(ctx context.Context) error {
	for _, p := range []program{s.old, s.new} {
		s.ask(ctx, p, "status", 0, s.show.Fleet.Pods()[3])
		s.ask(ctx, p, "pause --reason mixed", 0, "")
		s.ask(ctx, p, "resume", 0, "")
	}
	s.refusesPlaces(ctx)
	return nil
}

// places has the table hold all that this release knows, and the old command look at it and change it.
func (s *story) places(ctx context.Context) error {
	pod := s.show.Fleet.Pods()[0]
	for _, line := range []string{
		"drain " + pod + " --wait --reason skew", "pause --reason skew",
		"pin " + demo.SitesNamespace + "/site-00000 --to pool=large --expect", "canary start --build v9 --share 5% --expect",
	} {
		s.ask(ctx, s.new, line, 0, "")
	}
	before := s.text(ctx)
	if before["format"] != "5" {
		return fmt.Errorf("the table is of format %s, want 5", before["format"])
	}
	const newer = `(?s)"5", but this program reads 1 to 4: unknown table format`
	for _, line := range []string{
		"status", "status -o json", "check", "who website/site-00000", "plan --replicas 4", "history", "verify --every 2s",
		"rebalance", "drain " + pod, "undrain " + pod, "pause", "resume",
	} {
		s.ask(ctx, s.old, line, 1, newer)
	}
	s.ask(ctx, s.old, "status -A", 0, "but this program reads 1 to 4")
	archive := filepath.Join(s.TempDir(), "dump.tar.gz")
	s.ask(ctx, s.old, "dump --file "+archive, 0, newer)
	s.ask(ctx, s.old, "uninstall --yes", 1, "these members are alive")
	after := s.text(ctx)
	for _, field := range []string{"format", "orders", "pins", "uid"} {
		if after[field] != before[field] {
			s.Errorf("the old command changed the field %s:\n%s\nit was:\n%s", field, after[field], before[field])
		}
	}
	return nil
}

// rolledBack is when the first old member has joined a table that held all that this release knows. What it does not
// know has ended, and the rest has stayed.
func (s *story) rolledBack(ctx context.Context) error {
	t := s.show.Table()
	if t.Canary.On() || len(t.Pins) > 0 || !t.Paused() || len(t.Drains) != 1 {
		s.Errorf("an old member has joined, and the table has canary %v, pins %v, pause %v, marks %v; want the last two alone",
			t.Canary, t.Pins, t.Pause, t.Drains)
	}
	if text := s.text(ctx); text["format"] != "4" || text["labels"] != "" {
		s.Errorf("the table: %v", text)
	}
	err := await.Until(ctx, 100*time.Millisecond, 30*time.Second, func() string { return s.untold(ctx) })
	if err != nil {
		s.Error(err)
	}
	for _, p := range []program{s.old, s.new} {
		s.ask(ctx, p, "status", 0, "paused")
	}
	s.ask(ctx, s.old, "resume", 0, "")
	s.ask(ctx, s.old, "undrain "+t.Drains[0].Pod, 0, "")
	return nil
}

// untold is "" if an event tells that orders ended.
func (s *story) untold(ctx context.Context) string {
	list, err := s.kube.CoreV1().Events(demo.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	if slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
		return e.Reason == "OrdersEnded" && strings.Contains(e.Message, "v9") && strings.Contains(e.Message, "pool=large")
	}) {
		return ""
	}
	return "there is no event OrdersEnded that names the canary and the pin"
}

// text is the table's.
func (s *story) text(ctx context.Context) map[string]string {
	cm, err := s.kube.CoreV1().ConfigMaps(demo.Namespace).Get(ctx, demo.Name, metav1.GetOptions{})
	if err != nil {
		s.Error(err)
		return nil
	}
	return cm.Data
}

// ask runs a command, and wants that it ends with that exit code and says what the regular expression matches.
func (s *story) ask(ctx context.Context, p program, line string, code int, want string) {
	s.Helper()
	begun := time.Now()
	out, got := s.tried(ctx, p, line)
	if flat := strings.Join(strings.Fields(out), " "); got != code || !regexp.MustCompile(want).MatchString(flat) {
		s.Errorf("%s %s: exit code %d, want %d, and output that matches %q:\n%s", p.name, line, got, code, want, out)
		return
	}
	s.Logf("%s %s: %d, %.1f s", p.name, line, got, time.Since(begun).Seconds())
}

// tried runs a command, and returns what it says, and its exit code.
func (s *story) tried(ctx context.Context, p program, line string) (out string, code int) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	args := strings.Fields(line)
	switch {
	case args[0] == "who":
		args = append(args, "-n", demo.SitesNamespace, "--rota", demo.Namespace+"/"+demo.Name)
	case !slices.Contains(args, "-A"):
		args = append(args, demo.Name, "-n", demo.Namespace)
	}
	args = append(args, "--kubeconfig", s.show.AdminKubeconfig())
	text, err := exec.CommandContext(ctx, p.path, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(text), exit.ExitCode()
	}
	if err != nil {
		return err.Error(), -1
	}
	return string(text), 0
}
