// Package chart tests the Helm charts with Helm's own code: what they render, what they refuse, and on a real control
// plane that an operator runs with exactly what they grant.
package chart

import (
	"bytes"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/downloader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/getter"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/test/controlplane"
)

const (
	root   = "../.."
	charts = root + "/charts"
)

var update = flag.Bool("update", false, "write the files that are generated instead of comparing with them")

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	controlplane.Parallel(6) // those tests that are parallel wait most of the time
	controlplane.Main(m, controlplane.Options{Audit: true})
}

// values are those of the chart website.
type values = map[string]any

// folder returns a copy of the charts in which the dependency of website is there, as `helm dependency update` leaves
// it.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(charts)); err != nil {
		t.Fatal(err)
	}
	fetch(t, dir, "website")
	return filepath.Join(dir, "website")
}

// fetch does what `helm dependency update` does for a chart in dir.
func fetch(t *testing.T, dir, chart string) {
	t.Helper()
	manager := &downloader.Manager{
		Out: io.Discard, ChartPath: filepath.Join(dir, chart), SkipUpdate: true, Getters: getter.All(cli.New()),
		RepositoryConfig: filepath.Join(dir, "repositories.yaml"), RepositoryCache: dir, ContentCache: dir,
	}
	if err := manager.Update(); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T) *v2.Chart {
	t.Helper()
	chart, err := loader.Load(folder(t))
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

// release is what is installed: the chart website under a name, in a namespace.
type release struct {
	name, namespace string
	values          values
	// cluster is where templates look up what is there; nil: nowhere, as `helm template`.
	cluster *rest.Config
}

// example is the release that the files of examples/website/deploy are rendered from.
func example(v values) release {
	return release{name: "website-operator", namespace: "operators", values: v}
}

// text renders the release, in the order in which Helm installs, and its notes.
func (r release) text(chart *v2.Chart) (manifests []string, notes string, err error) {
	v := values{}
	for name, value := range r.values {
		v[name] = value
	}
	if err := chartutil.ProcessDependencies(chart, v); err != nil {
		return nil, "", err
	}
	all, err := util.ToRenderValues(chart, v, common.ReleaseOptions{
		Name: r.name, Namespace: r.namespace, Revision: 1, IsInstall: true,
	}, nil)
	if err != nil {
		return nil, "", err
	}
	var files map[string]string
	if r.cluster != nil {
		files, err = engine.RenderWithClient(chart, all, r.cluster)
	} else {
		files, err = engine.Render(chart, all)
	}
	if err != nil {
		return nil, "", err
	}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes += files[name]
			delete(files, name)
		}
	}
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, "", err
	}
	for _, m := range sorted {
		manifests = append(manifests, strings.TrimSpace(m.Content)+"\n")
	}
	return manifests, notes, nil
}

// objects renders the release.
func (r release) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	manifests, _, err := r.text(load(t))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, manifests)
}

func parse(t *testing.T, manifests []string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, text := range manifests {
		obj := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &obj.Object); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		out = append(out, obj)
	}
	return out
}

// into converts an object to its type. Fields that the type does not have fail the test.
func into[T any](t *testing.T, obj *unstructured.Unstructured) *T {
	t.Helper()
	text, err := yaml.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := yaml.UnmarshalStrict(text, out); err != nil {
		t.Fatalf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
	return out
}

// only returns the objects of a kind.
func only(objects []*unstructured.Unstructured, kind string) (out []*unstructured.Unstructured) {
	for _, obj := range objects {
		if obj.GetKind() == kind {
			out = append(out, obj)
		}
	}
	return out
}

// one returns the object of a kind.
func one(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	found := only(objects, kind)
	if len(found) != 1 {
		t.Fatalf("%d objects of kind %s, want 1", len(found), kind)
	}
	return found[0]
}

// compare compares a file of this checkout with what it should be, or writes it with -update.
func compare(t *testing.T, path string, want []byte) {
	t.Helper()
	path = filepath.Join(root, path)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; cd tools/chart && GOWORK=off go test -short -update . writes it", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale; cd tools/chart && GOWORK=off go test -short -update . writes it", path)
	}
}

// set returns v with a value at a path such as "rota.fence.enabled", and leaves v as it is.
func set(v values, path string, to any) values {
	out := maps.Clone(v)
	if out == nil {
		out = values{}
	}
	name, rest, deeper := strings.Cut(path, ".")
	if deeper {
		inner, _ := out[name].(values)
		to = set(inner, rest, to)
	}
	out[name] = to
	return out
}

// sorted returns the keys of a map.
func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// read returns a file of this checkout.
func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
