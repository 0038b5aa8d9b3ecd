package adopt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLink: a folder that is a link is read as what it leads to, manifests included.
func TestLink(t *testing.T) {
	want, err := filepath.Abs(filepath.Join("testdata", "forms", "listkind"))
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(want, link); err != nil {
		t.Skip(err)
	}
	r, err := Run(t.Context(), Options{Dir: link})
	if err != nil || r.Dir != want {
		t.Fatalf("%+v, %v, want %s", r, err, want)
	}
	for _, f := range r.Findings {
		if f.File == "all.yaml" {
			return
		}
	}
	t.Errorf("nothing is said of all.yaml: %+v", r.Findings)
}

// TestMissingSum: where go.sum lacks what go.mod requires, `go mod tidy` is what helps, not another version.
func TestMissingSum(t *testing.T) {
	dir := t.TempDir()
	mod, err := os.ReadFile("../../../go.mod")
	must(t, err)
	text := strings.Replace(string(mod), "module github.com/rota-dev/rota\n", "module example.com/shop\n", 1)
	writeFile(t, filepath.Join(dir, "go.mod"), text)
	writeFile(t, filepath.Join(dir, "main.go"), `package main

import ctrl "sigs.k8s.io/controller-runtime"

func main() {
	_, _ = ctrl.NewManager(nil, ctrl.Options{})
}
`)
	for _, vendored := range []bool{false, true} {
		want := "`go mod tidy`, "
		if vendored {
			writeFile(t, filepath.Join(dir, "vendor", "modules.txt"), "")
			want = "`go mod tidy && go mod vendor`, "
		}
		t.Setenv("GOFLAGS", "-mod=readonly") // with vendor it would be -mod=vendor
		r, err := Run(t.Context(), Options{Dir: dir})
		must(t, err)
		if f := r.Findings[0]; f.Code != codeBroken || !strings.Contains(f.Text, "go.sum lacks") ||
			!strings.HasPrefix(f.Instead, want) {
			t.Errorf("%+v, want %s", f, want)
		}
	}
}
