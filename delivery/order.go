package delivery

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errNoOrder says that a kind's resourceVersions cannot be compared.
var errNoOrder = errors.New("its resourceVersions cannot be ordered, which a share of a kind needs: see that its API server has decimal ones, " +
	"or have every member cache the kind whole (an informer of Share.NewInformer; with controller-runtime, watch it without having it sharded)")

// order knows how the resourceVersions of a kind look. Those of Kubernetes' own API servers are decimal numbers, and of
// custom resources, too; aggregated API servers may have others. Numbers that all end in the same text are in the order of
// the numbers. The zero value knows nothing yet.
type order struct{ example string }

// check returns an error about a version that has no place in the order of those before. It takes "" for none.
func (o *order) check(kind schema.GroupKind, version string) error {
	switch {
	case version == "":
		return nil
	case len(version) == len(tail(version)):
		return fmt.Errorf("%s has resourceVersion %q: %w", kind, version, errNoOrder)
	case o.example == "":
		o.example = version
	case tail(version) != tail(o.example):
		return fmt.Errorf("%s has resourceVersions %q and %q: %w", kind, o.example, version, errNoOrder)
	}
	return nil
}

// tail is what follows the digits that a version begins with.
func tail(version string) string { return strings.TrimLeft(version, "0123456789") }
