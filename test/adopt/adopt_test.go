// Package adopt holds `rota adopt` against operators that nobody here wrote: one that kubebuilder scaffolds, which it
// adopts and runs, and two in production, of which it only reads the source.
package adopt

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/adopt"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("SLOW") == "" {
		t.Skip("downloads operators and tools: make check WHAT=adopt")
	}
}

// run runs a program in a folder.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestOperators: what becomes of the controllers of operators in production, by hand from their source. JobSet's
// controller of Pods lists Pods. Nothing is written.
func TestOperators(t *testing.T) {
	slow(t)
	for version, want := range map[string]map[string]string{
		"sigs.k8s.io/jobset@v0.10.1": {"jobset": adopt.Sharded, "pod": adopt.Duty},
	} {
		t.Run(version, func(t *testing.T) {
			var module struct{ Dir string }
			require.NoError(t, json.Unmarshal([]byte(run(t, t.TempDir(), "go", "mod", "download", "-json", version)), &module))
			dir := filepath.Join(t.TempDir(), "operator")
			require.NoError(t, os.CopyFS(dir, os.DirFS(module.Dir)))
			r, err := adopt.Run(t.Context(), adopt.Options{Dir: dir})
			require.NoError(t, err)
			got := map[string]string{}
			for _, c := range r.Controllers {
				got[c.Name] = c.Becomes
				t.Logf("%s: %s %s", c.Name, c.Becomes, c.Reason)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s%v", diff, r.Broken)
			}
		})
	}
}

// TestScaffold: in an operator that kubebuilder scaffolds, all that must change is found and written, what is written
// compiles, nothing is left, and two replicas share the objects. When one ends, the other has them all.
func TestScaffold(t *testing.T) {
	slow(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "memcached")
	require.NoError(t, os.Mkdir(dir, 0o755))
	kubebuilder := func(args string) {
		run(t, dir, "go", append([]string{"run", "sigs.k8s.io/kubebuilder/v4@v4.16.0"}, strings.Fields(args)...)...)
	}
	kubebuilder("init --domain example.com --repo example.com/memcached --fetch-deps=false")
	kubebuilder("create api --group cache --version v1alpha1 --kind Memcached --plugins=deploy-image/v1-alpha " +
		"--image=memcached:1.6.26-alpine --image-container-port=11211 --run-as-user=1001 --make=false")
	run(t, dir, "go", "run", "sigs.k8s.io/controller-tools/cmd/controller-gen@v0.22.0", "object", "crd", "paths=./...",
		"output:crd:artifacts:config=config/crd/bases")
	run(t, dir, "go", "mod", "edit", "-require=github.com/rota-dev/rota@v0.0.0", "-replace=github.com/rota-dev/rota="+root)
	run(t, dir, "go", "get", "github.com/rota-dev/rota/ctrlrt", "./...")

	report := func() (r *adopt.Report, must []string) {
		r, err := adopt.Run(t.Context(), adopt.Options{Dir: dir})
		require.NoError(t, err)
		for _, f := range r.Findings {
			if f.Level == adopt.Must {
				must = append(must, f.Code)
			}
		}
		slices.Sort(must)
		return r, must
	}
	r, must := report()
	if diff := cmp.Diff([]string{"LeaderElection", "Manager", "ShardedController"}, must); diff != "" {
		t.Fatalf("what must be changed (-want +got):\n%s%v", diff, r.Broken)
	}
	changes, err := r.Changes()
	require.NoError(t, err)
	require.NoError(t, r.Check(t.Context(), changes))
	require.NoError(t, adopt.Write(changes))
	run(t, dir, "go", "mod", "tidy")
	run(t, dir, "go", "vet", "./...")
	if _, must := report(); len(must) > 0 {
		t.Errorf("left after --write: %v", must)
	}
	run(t, dir, "go", "build", "-o", "bin/manager", "./cmd")
	shares(t, dir, r.Managers[0].LeaderElectionID)
}

// shares runs two replicas of the written operator, in the namespace of a Pod each.
func shares(t *testing.T, dir, lease string) {
	t.Helper()
	plane := controlplane.New(t, controlplane.Options{})
	crds, err := filepath.Glob(filepath.Join(dir, "config", "crd", "bases", "*.yaml"))
	if err != nil || len(crds) != 1 {
		t.Fatal(crds, err)
	}
	crd, err := os.ReadFile(crds[0])
	require.NoError(t, err)
	require.NoError(t, plane.InstallCRDs(t.Context(), crd))
	c, err := client.New(plane.Config(), client.Options{})
	require.NoError(t, err)
	namespace := plane.Namespace(t)
	// A Lease that nobody holds: no leader can be at work, so the first start need not wait for one (docs/migrate.md).
	require.NoError(t, c.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lease, Namespace: namespace}}))
	start := func(pod string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "bin", "manager"), "--kubeconfig", plane.Kubeconfig(), "--metrics-bind-address=0",
			"--health-probe-bind-address=0", "--leader-elect")
		cmd.Env = append(os.Environ(), "POD_NAMESPACE="+namespace, "POD_NAME="+pod, "MEMCACHED_IMAGE=memcached:1.6.26-alpine")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		require.NoError(t, controlplane.Spawn(cmd))
		t.Cleanup(func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		})
		return cmd
	}
	eventually := func(wrong func() string) {
		t.Helper()
		require.NoError(t, await.Until(t.Context(), 100*time.Millisecond, 2*time.Minute, wrong))
	}
	owners := func(want int) func() string {
		return func() string {
			var cm corev1.ConfigMap
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "memcached"}, &cm); err != nil {
				return err.Error()
			}
			tab, err := table.Decode(cm.Data)
			if err != nil {
				return err.Error()
			}
			have := map[string]bool{}
			for _, run := range tab.Runs {
				if run.Owner == "" || run.Next != "" || run.Unsettled {
					return "slots move"
				}
				have[run.Owner] = true
			}
			if len(have) != want {
				return fmt.Sprintf("%d members own slots, want %d", len(have), want)
			}
			return ""
		}
	}
	deployed := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			require.NoError(t, c.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached",
				"metadata": map[string]any{"name": fmt.Sprintf("m-%d", i), "namespace": namespace},
				"spec":     map[string]any{"size": int64(1), "containerPort": int64(11211)},
			}}))
		}
		eventually(func() string {
			var list appsv1.DeploymentList
			if err := c.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
				return err.Error()
			}
			if len(list.Items) != to {
				return fmt.Sprintf("%d Deployments, want %d", len(list.Items), to)
			}
			return ""
		})
	}
	a := start("memcached-a")
	start("memcached-b")
	eventually(owners(2))
	deployed(0, 12)
	require.NoError(t, a.Process.Signal(syscall.SIGTERM))
	if err := a.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	eventually(owners(1))
	deployed(12, 16)
}
