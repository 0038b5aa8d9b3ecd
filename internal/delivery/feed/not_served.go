package feed

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// The API server may not serve a kind, for instance because its CustomResourceDefinition was deleted. That must not
// hold up the slots of other kinds. So slots count as empty of the kind, and all of it is listed when it is served
// again. A 404 does not prove that objects are gone, so the store keeps what it has. If the objects are gone, the watch
// or that list says so.

// errVacant ends a wait for a kind that is not served.
var errVacant = errors.New("the kind is not served")

// NotServed reports whether the API server does not know the kind. A gateway that does not know the path answers the
// same.
func NotServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }
