package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type chart struct {
	Name, Version, AppVersion string
	Annotations               map[string]string
	Dependencies              []struct{ Name, Version, Repository string }
}

func readChart(t *testing.T, name string) (c chart) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "charts", name, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestVersions: charts, images in manifests and in what Artifact Hub is told, and versions in commands of pages are all
// those of one release: the charts' version. docs/release.md says to change them together.
func TestVersions(t *testing.T) {
	rota, website := readChart(t, "rota"), readChart(t, "website")
	version := rota.Version
	if website.Version != version || website.AppVersion != "v"+version || len(website.Dependencies) != 1 ||
		website.Dependencies[0].Version != version {
		t.Errorf("chart rota %s, but chart website %s with appVersion %s and dependencies %v", version, website.Version,
			website.AppVersion, website.Dependencies)
	}
	if v := website.Annotations["artifacthub.io/images"]; !strings.Contains(v, "website-operator:v"+version+"\n") {
		t.Errorf("chart website tells Artifact Hub of images\n%s", v)
	}
	known := map[string]bool{}
	for _, i := range images {
		known[i.Repository] = true
	}
	image := regexp.MustCompile(`ghcr\.io/rota-dev/([a-z-]+)(:v[0-9][^\s"'@)` + "`" + `]*)?`)
	packaged := regexp.MustCompile(`oci://ghcr\.io/rota-dev/charts\S* --version (\S+)`)
	seen := 0
	for _, dir := range []string{"charts", "docs", "examples", "apiservers", "README.md"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") && !strings.HasSuffix(path, ".md") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range image.FindAllStringSubmatch(string(text), -1) {
				repository, tag := "ghcr.io/rota-dev/"+m[1], m[2]
				if m[1] == "charts" {
					continue
				}
				if seen++; !known[repository] || tag != "" && tag != ":v"+version {
					t.Errorf("%s has the image %s%s; the releases' are of v%s, and in the list in image.go", path, repository, tag,
						version)
				}
			}
			for _, m := range packaged.FindAllStringSubmatch(string(text), -1) {
				if m[1] != version {
					t.Errorf("%s installs version %s of a chart, which is %s", path, m[1], version)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 5 {
		t.Errorf("%d images in manifests", seen)
	}
}

// TestImageUser: manifests run the images as the user that they have.
func TestImageUser(t *testing.T) {
	number := regexp.MustCompile(`runAsUser: (\d+)`)
	for _, path := range []string{
		"charts/rota/values.yaml", "examples/dispatch/dispatcher.yaml", "examples/website/deploy/website.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		found := number.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s has no user", path)
		}
		for _, m := range found {
			if m[1] != "65532" || user != 65532 {
				t.Errorf("%s runs as user %s, the images as %d", path, m[1], user)
			}
		}
	}
}
