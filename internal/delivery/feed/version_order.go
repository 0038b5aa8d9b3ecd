package feed

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrNoOrder is returned if a kind's resourceVersions cannot be compared.
var ErrNoOrder = errors.New("its resourceVersions cannot be ordered, which a share of a kind needs: see that its API " +
	"server has decimal ones, or have every member cache the kind whole (an informer of Share.NewInformer; with " +
	"controller-runtime, watch it without having it sharded)")

// order checks that the resourceVersions of a kind can be ordered. Kubernetes' own API servers use decimal numbers,
// also for custom resources. Aggregated API servers may use other texts. Numbers that all end in the same text are
// ordered by the numbers. The zero value has seen no version yet.
type order struct{ example string }

// check returns an error for a version that cannot be ordered with those before. "" stands for no version.
func (o *order) check(kind schema.GroupKind, version string) error {
	switch {
	case version == "":
		return nil
	case len(version) == len(tail(version)):
		return fmt.Errorf("%s has resourceVersion %q: %w", kind, version, ErrNoOrder)
	case o.example == "":
		o.example = version
	case tail(version) != tail(o.example):
		return fmt.Errorf("%s has resourceVersions %q and %q: %w", kind, o.example, version, ErrNoOrder)
	}
	return nil
}

// tail is what follows the digits that a version begins with.
func tail(version string) string { return strings.TrimLeft(version, "0123456789") }
