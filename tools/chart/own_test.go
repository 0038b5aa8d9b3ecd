package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"
)

// TestOwnChart builds the chart that docs/deploy.md shows to those who have one of their own, and renders it. Names
// that the outer chart defines win over the library's.
func TestOwnChart(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(charts)); err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n# ([A-Za-z]+\\.yaml|templates/[a-z]+\\.yaml)\n(.*?)```").
		FindAllSubmatch(read(t, "docs/deploy.md"), -1)
	if len(shown) != 4 {
		t.Fatalf("docs/deploy.md shows %d files, want 4", len(shown))
	}
	write := func(name string, content []byte) {
		path := filepath.Join(dir, "shop", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range shown {
		write(string(file[1]), file[2])
	}
	render := func(v values) (map[string]int, *appsv1.Deployment) {
		fetch(t, dir, "shop")
		chart, err := loader.Load(filepath.Join(dir, "shop"))
		if err != nil {
			t.Fatal(err)
		}
		manifests, _, err := release{name: "prod", namespace: "shops", values: v}.text(chart)
		if err != nil {
			t.Fatal(err)
		}
		objects, count := parse(t, manifests), map[string]int{}
		for _, obj := range objects {
			strict[obj.GetKind()](t, obj)
			count[obj.GetKind()]++
		}
		return count, into[appsv1.Deployment](t, one(t, objects, "Deployment"))
	}
	v := set(full(), "rota.delivery", "SlotLabel")
	count, d := render(v)
	for kind, want := range map[string]int{
		"Deployment": 1, "ServiceAccount": 1, "Role": 1, "ClusterRole": 1, "PodDisruptionBudget": 1,
		"HorizontalPodAutoscaler": 1, "ServiceMonitor": 1, "PrometheusRule": 1, "ValidatingAdmissionPolicy": 2,
	} {
		if count[kind] != want {
			t.Errorf("%d objects of kind %s, want %d", count[kind], kind, want)
		}
	}
	if d.Name != "prod-shop" || d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "shop" {
		t.Errorf("%s selects %v", d.Name, d.Spec.Selector.MatchLabels)
	}
	write("templates/_names.tpl", []byte(`{{ define "rota.fullname" }}shop-manager{{ end }}
{{ define "rota.selectorLabels" }}app: shop{{ end }}
`))
	_, d = render(v)
	if d.Name != "shop-manager" || d.Spec.Template.Spec.ServiceAccountName != "shop-manager" ||
		len(d.Spec.Selector.MatchLabels) != 1 || d.Spec.Selector.MatchLabels["app"] != "shop" {
		t.Errorf("%s, with ServiceAccount %s, selects %v: the library's names are used instead of the chart's", d.Name,
			d.Spec.Template.Spec.ServiceAccountName, d.Spec.Selector.MatchLabels)
	}
}
