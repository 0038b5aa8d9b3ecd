// Package adopt holds `rota adopt` against operators that kubebuilder scaffolds: what it finds, that what it writes
// compiles, and on a real control plane that two replicas of the written operator share their objects with the permissions
// that the manifests grant, and no others.
package adopt

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/cli/adopt"
	"github.com/rota-dev/rota/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{Audit: true}) }

// root is the checkout.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// scaffold is one operator as kubebuilder makes it.
type scaffold struct {
	name string
	// init are flags of `kubebuilder init`, commands what comes after it.
	init     []string
	commands [][]string
	// requires: it imports Rota before it is adopted, as an external type's module.
	requires bool
	// becomes is what becomes of its controllers.
	becomes map[string]string
	// findings are the codes of what must be changed, by file.
	findings map[string][]string
}

func words(text string) []string { return strings.Fields(text) }

// managerYAML is kubebuilder's Deployment, deploymentFindings those of it.
const managerYAML = "config/manager/manager.yaml"

var deploymentFindings = []string{"GracePeriod", "PodEnvironment"}

var scaffolds = []scaffold{
	{
		name: "shop",
		commands: [][]string{
			words("create api --group shop --version v1 --kind Order --resource --controller --make=false"),
			words("create webhook --group shop --version v1 --kind Order --defaulting --programmatic-validation --make=false"),
		},
		becomes: map[string]string{"order": adopt.Sharded},
		findings: map[string][]string{
			"cmd/main.go": {"LeaderElection", "Manager"}, managerYAML: deploymentFindings,
			"config/rbac/role.yaml": {"Permission"}, "internal/controller/order_controller.go": {"ShardedController"},
		},
	},
	{
		name:     "fleet",
		init:     []string{"--multigroup"},
		requires: true,
		commands: [][]string{
			words("create api --group ship --version v1 --kind Frigate --resource --controller --make=false"),
			words("create api --group crew --version v1beta1 --kind Captain --resource --controller --namespaced=false --make=false"),
			words("create api --group apps --version v1 --kind Deployment --resource=false --controller --make=false"),
			words("create api --group web --version v1 --kind Website --resource=false --controller --make=false " +
				"--external-api-path=github.com/rota-dev/rota/examples/website/api/v1 --external-api-domain=example.com"),
		},
		becomes: map[string]string{
			"ship-frigate": adopt.Sharded, "crew-captain": adopt.Sharded, "apps-deployment": adopt.Sharded, "web-website": adopt.Sharded,
		},
		findings: map[string][]string{
			"cmd/main.go": {"LeaderElection", "Manager"}, managerYAML: deploymentFindings,
			"config/rbac/role.yaml":                             {"Permission"},
			"internal/controller/ship/frigate_controller.go":    {"ShardedController"},
			"internal/controller/crew/captain_controller.go":    {"ShardedController"},
			"internal/controller/apps/deployment_controller.go": {"ShardedController"},
			"internal/controller/web/website_controller.go":     {"ShardedController"},
		},
	},
	{
		name: "memcached",
		init: []string{"--namespaced"},
		commands: [][]string{append(words("create api --group cache --version v1alpha1 --kind Memcached "+
			"--plugins=deploy-image/v1-alpha --image=memcached:1.6.26-alpine --image-container-port=11211 --run-as-user=1001 "+
			"--make=false"), "--image-container-command=memcached,--memory-limit=64,-v")},
		becomes: map[string]string{"memcached": adopt.Sharded},
		findings: map[string][]string{
			"cmd/main.go": {"LeaderElection", "Manager"}, managerYAML: deploymentFindings,
			"internal/controller/memcached_controller.go": {"ShardedController"},
		},
	},
}

// tools are the programs that are run: kubebuilder and controller-gen, pinned in go.mod, and rota.
type tools struct{ kubebuilder, controllerGen, rota string }

var build = sync.OnceValues(func() (tools, error) {
	dir, err := os.MkdirTemp("", "adopt")
	if err != nil {
		return tools{}, err
	}
	t := tools{filepath.Join(dir, "kubebuilder"), filepath.Join(dir, "controller-gen"), filepath.Join(dir, "rota")}
	for path, pkg := range map[string][2]string{
		t.kubebuilder: {".", "sigs.k8s.io/kubebuilder/v4"}, t.controllerGen: {".", "sigs.k8s.io/controller-tools/cmd/controller-gen"},
		t.rota: {"../..", "./cmd/rota"},
	} {
		cmd := exec.Command("go", "build", "-o", path, pkg[1])
		cmd.Dir = pkg[0]
		if out, err := cmd.CombinedOutput(); err != nil {
			return tools{}, errors.Join(err, errors.New(string(out)))
		}
	}
	return t, nil
})

// operator is a scaffold in a folder of its own.
type operator struct {
	*testing.T
	tools
	scaffold
	dir string
}

// run runs a program in the operator's folder.
func (o *operator) run(name string, args ...string) string {
	o.Helper()
	cmd := exec.CommandContext(o.Context(), name, args...)
	cmd.Dir = o.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// report runs `rota adopt -o json`.
func (o *operator) report() *adopt.Report {
	o.Helper()
	cmd := exec.CommandContext(o.Context(), o.rota, "adopt", "-o", "json", o.dir)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		o.Fatalf("rota adopt: %v\n%s", err, out)
	}
	var r adopt.Report
	if err := json.Unmarshal(out, &r); err != nil {
		o.Fatal(err)
	}
	if len(r.Broken) > 0 {
		o.Fatalf("not compiled: %v", r.Broken)
	}
	return &r
}

// must returns the codes of what must be changed, sorted, by file.
func must(r *adopt.Report) map[string][]string {
	out := map[string][]string{}
	for _, f := range r.Findings {
		if f.Level == adopt.Must {
			out[f.File] = append(out[f.File], f.Code)
		}
	}
	for _, codes := range out {
		slices.Sort(codes)
	}
	return out
}

// require has the operator require the checkout.
func (o *operator) require() {
	o.Helper()
	o.run("go", "mod", "edit", "-require=github.com/rota-dev/rota@v0.0.0", "-replace=github.com/rota-dev/rota="+root(o.T))
}

// TestScaffolds: of what kubebuilder scaffolds, everything that must be changed is found and written, what is written
// compiles, nothing is left, and two replicas share the work.
func TestScaffolds(t *testing.T) {
	programs, err := build()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(programs.rota)) })
	for _, s := range scaffolds {
		t.Run(s.name, func(t *testing.T) {
			o := &operator{t, programs, s, filepath.Join(t.TempDir(), s.name)}
			o.scaffold.make(o)
			before := o.report()
			becomes := map[string]string{}
			for _, c := range before.Controllers {
				becomes[c.Name] = c.Becomes
			}
			if diff := cmp.Diff(s.becomes, becomes); diff != "" {
				t.Errorf("controllers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(s.findings, must(before)); diff != "" {
				t.Errorf("what must be changed (-want +got):\n%s", diff)
			}
			o.run(o.rota, "adopt", "--write", o.dir)
			o.require()
			o.run("go", "mod", "tidy")
			o.run("go", "vet", "./...")
			after := o.report()
			if left := must(after); len(left) > 0 {
				t.Errorf("left after --write: %v", left)
			}
			if changes := o.run(o.rota, "adopt", "--diff", o.dir); changes != "" {
				t.Errorf("a second --write would change more:\n%s", changes)
			}
			o.shares()
		})
	}
}

// make makes the scaffold.
func (s scaffold) make(o *operator) {
	o.Helper()
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		o.Fatal(err)
	}
	o.run(o.kubebuilder, append([]string{"init", "--domain", "example.com", "--repo", "example.com/" + s.name, "--fetch-deps=false"},
		s.init...)...)
	if s.requires {
		o.require()
	}
	for _, args := range s.commands {
		o.run(o.kubebuilder, args...)
	}
	o.run(o.controllerGen, "object:headerFile=hack/boilerplate.go.txt", "paths=./...")
	o.run(o.controllerGen, "rbac:roleName=manager-role", "crd", "webhook", "paths=./...",
		"output:crd:artifacts:config=config/crd/bases")
	o.run("go", "mod", "tidy")
}
