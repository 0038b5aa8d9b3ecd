// Package charts holds what the Helm charts render (testdata, written by test.sh) against the permissions that members
// need, the fence that `rota fence` prints, and a real API server.
package charts

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

const root = "../.."

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	controlplane.Main(m, controlplane.Options{Audit: true})
}

// read returns a file of this checkout.
func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return text
}

// rendered returns what the chart renders with values of testdata.
func rendered(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	path := "test/charts/testdata/" + name + ".yaml"
	if name == "website" {
		path = "examples/website/deploy/" + name + ".yaml"
	}
	return parse(t, read(t, path))
}

func parse(t *testing.T, text []byte) (out []*unstructured.Unstructured) {
	t.Helper()
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &obj.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		out = append(out, obj)
	}
	return out
}

// into converts an object to its type. Fields that the type does not have fail the test.
func into[T any](t *testing.T, obj *unstructured.Unstructured) *T {
	t.Helper()
	text, err := yaml.Marshal(obj.Object)
	require.NoError(t, err)
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

// sorted returns the keys of a map.
func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
