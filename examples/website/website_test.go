// Package website has the tests of the example's files; the operator is in stock and sharded.
package website

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/store"
)

// TestFiveLines: an operator becomes sharded in at most five lines, and the README shows them.
func TestFiveLines(t *testing.T) {
	stock, sharded := lines(t, "stock/main.go"), lines(t, "sharded/main.go")
	added := changed(stock, sharded)
	if len(added) > 5 {
		t.Errorf("%d lines of sharded/main.go are not in stock/main.go, want at most 5:\n%s", len(added), strings.Join(added, "\n"))
	}
	if gone := changed(sharded, stock); len(gone) > len(added) {
		t.Errorf("%d lines of stock/main.go are not in sharded/main.go, want at most %d:\n%s", len(gone), len(added), strings.Join(gone, "\n"))
	}
	readme := lines(t, "README.md")
	for _, line := range added {
		if !slices.Contains(readme, "+"+line) {
			t.Errorf("README.md does not show the line %q", "+"+line)
		}
	}
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// changed returns the lines of b that a longest common subsequence of both does not have.
func changed(a, b []string) []string {
	best := make([][]int, len(a)+1)
	for i := range best {
		best[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			best[i][j] = max(best[i+1][j], best[i][j+1])
			if a[i] == b[j] {
				best[i][j] = best[i+1][j+1] + 1
			}
		}
	}
	var out []string
	for i, j := 0, 0; j < len(b); {
		switch {
		case i < len(a) && a[i] == b[j]:
			i, j = i+1, j+1
		case i < len(a) && best[i+1][j] >= best[i][j+1]:
			i++
		default:
			out = append(out, b[j])
			j++
		}
	}
	return out
}

// TestRole: the manifest grants what a member needs, no more and no less.
func TestRole(t *testing.T) {
	first, _, _ := bytes.Cut(config.RotaRole, []byte("\n---\n"))
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict(first, &role); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(store.Rules("website"), role.Rules); diff != "" {
		t.Errorf("config/rbac/rota.yaml (-store.Rules +manifest):\n%s", diff)
	}
}
