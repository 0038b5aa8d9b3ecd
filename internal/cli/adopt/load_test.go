package adopt

import (
	"os"
	"path/filepath"
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
