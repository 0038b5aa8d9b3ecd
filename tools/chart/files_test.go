package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

// TestCopies: what the charts need of other folders is the same there. It comes first, because
// -update writes these files for the tests after it.
func TestCopies(t *testing.T) {
	for file, from := range map[string]string{
		"charts/rota/files/alerts.yaml":                     "docs/alerts.yaml",
		"charts/website/crds/web.example.com_websites.yaml": "examples/website/config/crd/web.example.com_websites.yaml",
	} {
		want, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, file, want)
	}
}

// TestLint: `helm lint` finds nothing, not even hints, but for the icon that neither chart has.
func TestLint(t *testing.T) {
	website := folder(t)
	for _, dir := range []string{website, filepath.Join(filepath.Dir(website), "rota")} {
		result := lint.RunAll(dir, nil, "operators")
		for _, m := range result.Messages {
			if m.Severity == support.InfoSev && strings.Contains(m.Err.Error(), "icon is recommended") {
				continue
			}
			t.Errorf("%s: %v", filepath.Base(dir), m)
		}
	}
}

// full are the values of examples/website/deploy/full.yaml.
func full() values {
	v := set(nil, "rota.fence.enabled", true)
	v = set(v, "rota.autoscaling.enabled", true)
	v = set(v, "rota.autoscaling.maxReplicas", 6)
	v = set(v, "rota.autoscaling.oldestWaitingSeconds", 30)
	v = set(v, "rota.autoscaling.busyWorkersPercent", 70)
	v = set(v, "rota.monitoring.serviceMonitor.enabled", true)
	return set(v, "rota.monitoring.prometheusRule.enabled", true)
}

// TestManifests: the plain manifests are what the chart renders.
func TestManifests(t *testing.T) {
	for name, c := range map[string]struct {
		about  string
		values values
	}{
		"website": {"the default values", nil},
		"full":    {"fence, autoscaler by busy workers and keys that wait, ServiceMonitor and PrometheusRule", full()},
	} {
		manifests, _, err := example(c.values).text(load(t))
		if err != nil {
			t.Fatal(err)
		}
		head := "# Rendered from charts/website with " + c.about + ". Do not edit: tools/chart writes it.\n"
		compare(t, "examples/website/deploy/"+name+".yaml", []byte(head+strings.Join(manifests, "---\n")))
	}
}

// TestCanary: the Deployment of a canary differs from the other by its name, labels, image, build and workload.
func TestCanary(t *testing.T) {
	r := example(set(set(nil, "image.canaryTag", "v2"), "rota", values{
		"canary": values{"enabled": true, "build": "v2", "replicas": 2}, "memberLabels": values{"pool": "large"},
		"build": "v1",
	}))
	manifests, _, err := r.text(load(t))
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(manifests, "---\n")
	for want, n := range map[string]int{
		"kind: Deployment\n": 2, "name: website-operator-canary\n": 1, "app.kubernetes.io/component: canary\n": 3,
		"image: ghcr.io/rota-dev/website-operator:v2\n": 1, "- --rota-build=v2\n": 1, "- --rota-build=v1\n": 1, "- --rota-workload=website-operator\n": 1,
		"- --rota-member-labels=pool=large\n": 2, "replicas: 2\n": 1, "claimName: website-operator-pages\n": 2,
	} {
		if got := strings.Count(all, want); got != n {
			t.Errorf("%q is there %d times, want %d:\n%s", want, got, n, all)
		}
	}
}

// TestNotes: the notes name the commands to go on with, for this release.
func TestNotes(t *testing.T) {
	r := release{name: "shop", namespace: "web", values: set(nil, "rota.fence.enabled", true)}
	_, notes, err := r.text(load(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kubectl rollout status -n web deployment/shop-website\n",
		"rota status -n web website ", "rota check -n web website ",
		"kubectl annotate configmap -n web website rota.dev/fence=off\n",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	if bytes.Contains([]byte(notes), []byte("<no value>")) {
		t.Error(notes)
	}
}
