package assets

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// versionsIn returns the minor versions of Kubernetes, such as "1.33", of which programs can be built: that of
// kube/go.mod, which is the default, and those of kube/versions/*.mod. They are in ascending order.
func versionsIn(kube string) (all []string, byDefault string, err error) {
	modfile, err := os.ReadFile(filepath.Join(kube, "go.mod"))
	if err != nil {
		return nil, "", err
	}
	found := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes v(\d+\.\d+)\.`).FindSubmatch(modfile)
	if found == nil {
		return nil, "", fmt.Errorf("%s/go.mod requires no k8s.io/kubernetes", kube)
	}
	byDefault = string(found[1])
	others, err := filepath.Glob(filepath.Join(kube, "versions", "*.mod"))
	if err != nil {
		return nil, "", err
	}
	all = []string{byDefault}
	for _, path := range others {
		all = append(all, strings.TrimSuffix(filepath.Base(path), ".mod"))
	}
	slices.SortFunc(all, func(a, b string) int { return minor(a) - minor(b) })
	return all, byDefault, nil
}

// minor returns 33 for 1.33.
func minor(version string) int {
	_, text, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(text)
	return n
}

// modfileOf returns the modfile of a version, relative to kube/, and the name of the folder for its programs.
func modfileOf(kube, version string) (modfile, folder string, err error) {
	all, byDefault, err := versionsIn(kube)
	switch {
	case err != nil:
		return "", "", err
	case version == "" || version == byDefault:
		return "go.mod", "kube", nil
	case !slices.Contains(all, version):
		return "", "", fmt.Errorf("no programs of Kubernetes %q can be built here: there are %s", version,
			strings.Join(all, ", "))
	}
	return filepath.Join("versions", version+".mod"), "kube-" + version, nil
}
