// Package examples has the tests of what the examples' pages and manifests say.
package examples

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/require"
)

// TestFewLines: each example becomes sharded in few lines, its README shows them, and little goes but leader election.
func TestFewLines(t *testing.T) {
	for _, test := range []struct {
		example     string
		added, gone int // at most
	}{
		{"website", 5, 5},
		{"checksum", 10, 17},
	} {
		stock, sharded := read(t, test.example+"/stock/main.go"), read(t, test.example+"/sharded/main.go")
		readme := read(t, test.example+"/README.md")
		added, gone := beyond(stock, sharded), beyond(sharded, stock)
		if len(added) > test.added || len(gone) > test.gone {
			t.Errorf("%s: %d lines are only in the sharded form, want at most %d; %d only in the stock one, want at most %d:\n%s",
				test.example, len(added), test.added, len(gone), test.gone, strings.Join(slices.Concat(added, gone), "\n"))
		}
		for _, line := range added {
			if !slices.Contains(readme, "+"+line) {
				t.Errorf("%s/README.md does not show the line %q", test.example, "+"+line)
			}
		}
	}
}

func read(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Split(string(text), "\n")
}

// beyond returns the lines of b that a does not have, or not as often.
func beyond(a, b []string) (out []string) {
	have := map[string]int{}
	for _, line := range a {
		have[line]++
	}
	for _, line := range b {
		if have[line]--; have[line] < 0 {
			out = append(out, line)
		}
	}
	return out
}

// TestPage: the lines in docs/shard.md are lines of checksum/sharded/main.go.
func TestPage(t *testing.T) {
	_, section, _ := strings.Cut(strings.Join(read(t, "../docs/shard.md"), "\n"), "\n## With client-go alone\n")
	_, section, _ = strings.Cut(section, "```go\n")
	code, _, _ := strings.Cut(section, "\n```")
	if code == "" {
		t.Fatal("docs/shard.md has no code below \"With client-go alone\"")
	}
	main := read(t, "checksum/sharded/main.go")
	for _, line := range strings.Split(code, "\n") {
		if !slices.Contains(main, "\t"+line) {
			t.Errorf("checksum/sharded/main.go has no line %q", line)
		}
	}
}

// TestRole: the manifests of website grant what a member needs, no more and no less.
func TestRole(t *testing.T) {
	first, _, _ := bytes.Cut(config.RotaRole, []byte("\n---\n"))
	var role rbacv1.Role
	require.NoError(t, yaml.UnmarshalStrict(first, &role))
	if diff := cmp.Diff(permission.Rules("website"), role.Rules); diff != "" {
		t.Errorf("config/rbac/rota.yaml (-permission.Rules +manifest):\n%s", diff)
	}
	first, _, _ = bytes.Cut(config.LabelRole, []byte("\n---\n"))
	var labels rbacv1.ClusterRole
	require.NoError(t, yaml.UnmarshalStrict(first, &labels))
	want := labeller.Rules(webv1.GroupVersion.WithResource("websites"), appsv1.SchemeGroupVersion.WithResource("deployments"),
		corev1.SchemeGroupVersion.WithResource("services"), corev1.SchemeGroupVersion.WithResource("configmaps"))
	if diff := cmp.Diff(want, labels.Rules); diff != "" {
		t.Errorf("config/rbac/labels.yaml (-labeller.Rules +manifest):\n%s", diff)
	}
}
