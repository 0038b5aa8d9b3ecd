package adopt

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/rota-dev/rota/permission"
)

// TestSupported: the versions are those of the modfiles.
func TestSupported(t *testing.T) {
	for i, name := range []string{"go.mod", "go.latest.mod"} {
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		mod, err := modfile.Parse(name, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range mod.Require {
			for _, s := range supported {
				if want := []string{s.lowest, s.newest}[i]; r.Mod.Path == s.module && r.Mod.Version != want {
					t.Errorf("%s has %s %s, and this package %s", name, s.module, r.Mod.Version, want)
				}
			}
		}
	}
}

// TestPage: docs/adopt.md has a row of each code.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/adopt.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, e := range codes {
		if !bytes.Contains(page, []byte("`"+code+"`")) {
			t.Errorf("docs/adopt.md has no row of %s", code)
		}
		if e.why == "" {
			t.Errorf("%s does not say why it matters", code)
		}
	}
}

// TestRole: the Role that is written has what the project says that a member needs.
func TestRole(t *testing.T) {
	var role rbacv1.Role
	text := fmt.Sprintf(rotaRole, "shop", "")
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096).Decode(&role); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(permission.Rules("shop"), role.Rules); diff != "" {
		t.Error(diff)
	}
}
