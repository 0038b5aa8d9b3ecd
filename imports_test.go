package rota_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/require"
)

const module = "github.com/rota-dev/rota"

// layers lists the packages from the bottom up: each may import those above it in the list only, and what it is
// allowed of the outside.
var layers = []struct {
	name string
	// forbidden are import path prefixes, with the reason.
	forbidden map[string]string
}{
	{"internal/resourceversion", pure}, {"slot", pure}, {"internal/protocol/table", pure},
	{"internal/protocol/trial", pure},
	{"internal/delivery/stream", pure}, {"internal/protocol/plan", pure}, {"internal/protocol/planner", pure},
	{"internal/protocol/member", pure}, {"internal/protocol/election", pure}, {"internal/dispatch/queue", pure},
	{"internal/dispatch/wire", pure}, {"internal/elapsed", noKubernetes}, {"dispatch/client", workers},
	{"internal/names", pure}, {"permission", noControllerRuntime}, {"internal/await", noKubernetes},
	{"internal/store", noControllerRuntime}, {"fence", noControllerRuntime}, {"internal/nearest", pure},
	{"internal/turns", pure}, {"fair", noControllerRuntime},
	{"group", pure}, {"internal/gate", noKubernetes}, {"internal/work", simulated},
	{"internal/delivery/sharding", simulated}, {"internal/delivery/ledger", simulated},
	{"internal/upstream/clientgo", noControllerRuntime},
	{"internal/peer", noControllerRuntime},
	{"internal/delivery/sieve", noControllerRuntime},
	{"internal/delivery/feed", noControllerRuntime}, {"internal/delivery", noControllerRuntime},
	{"internal/labeller", noControllerRuntime},
	{"internal/coverage", noControllerRuntime}, {"internal/writes", noControllerRuntime},
	{"internal/moves", noControllerRuntime}, {"internal/replica", noControllerRuntime},
	{"internal/duty", noControllerRuntime}, {"internal/controllers", noControllerRuntime},
	{"internal/report", noControllerRuntime}, {"internal/adapter", noControllerRuntime},
	{"internal/engine", noControllerRuntime}, {"", noControllerRuntime},
	{"internal/upstream/controllerruntime", nil}, {"ctrlrt", nil}, {"dispatch/reconciler", nil},
}

var (
	pure = map[string]string{
		"k8s.io/":      "decisions must run in the simulator without Kubernetes",
		"sigs.k8s.io/": "decisions must run without Kubernetes",
		"net/":         "decisions do no I/O", "os": "decisions do no I/O", "context": "decisions do not wait",
		"sync": "decisions have no goroutines",
	}
	noKubernetes = map[string]string{"k8s.io/": "the simulator runs it", "sigs.k8s.io/": "the simulator runs it"}
	simulated    = map[string]string{
		"k8s.io/client-go": "the simulator runs it", "sigs.k8s.io/": "the simulator runs it", "net/": "the simulator runs it",
		"os": "the simulator runs it",
	}
	workers = map[string]string{
		"k8s.io/": "workers choose their client", "sigs.k8s.io/": "workers choose their client",
	}
	noControllerRuntime = map[string]string{
		"sigs.k8s.io/controller-runtime": "plain client-go programs must not pull it in",
	}
)

func TestLayersImportDownwardsOnly(t *testing.T) {
	type pkg struct {
		ImportPath string
		Imports    []string
	}
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", "./...").Output()
	require.NoError(t, err)
	rank := func(path string) int {
		for i, l := range layers {
			if strings.TrimSuffix(module+"/"+l.name, "/") == path {
				return i
			}
		}
		return -1
	}
	seen := 0
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		self := rank(p.ImportPath)
		if slices.Contains(p.Imports, "k8s.io/kubernetes") ||
			slices.ContainsFunc(p.Imports, func(i string) bool { return strings.HasPrefix(i, "k8s.io/kubernetes/") }) {
			t.Errorf("%s imports k8s.io/kubernetes, which belongs to the module kube alone", p.ImportPath)
		}
		if self < 0 {
			continue
		}
		seen++
		for _, path := range p.Imports {
			if r := rank(path); r >= self {
				t.Errorf("%s imports %s, which stands above it", p.ImportPath, path)
			}
			if r := rank(path); r < 0 && strings.HasPrefix(path, module+"/") {
				t.Errorf("%s imports %s, which is not part of the library", p.ImportPath, path)
			}
			for prefix, reason := range layers[self].forbidden {
				if path == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(path, prefix) ||
					strings.HasPrefix(path, prefix+"/") {
					t.Errorf("%s imports %s: %s", p.ImportPath, path, reason)
				}
			}
		}
	}
	if seen != len(layers) {
		t.Errorf("found %d of %d packages", seen, len(layers))
	}
}

// TestLinked: what people install has no test, benchmark or demo in it, nor does what they link into their tests.
func TestLinked(t *testing.T) {
	for _, program := range []string{"./cmd/rota", "./ctrlrt", "./rotatest"} {
		out, err := exec.Command("go", "list", "-deps", program).Output()
		require.NoError(t, err)
		linked := strings.Fields(string(out))
		if len(linked) < 100 {
			t.Fatalf("%s links %d packages", program, len(linked))
		}
		for _, path := range linked {
			folder, _, _ := strings.Cut(strings.TrimPrefix(path, module+"/"), "/")
			if path == "testing" && program != "./rotatest" || path != folder && slices.Contains([]string{"test", "bench", "demo", "examples"}, folder) {
				t.Errorf("%s links %s", program, path)
			}
		}
	}
}
