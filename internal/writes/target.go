package writes

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// target is what a request is about, according to its path.
type target struct {
	version  schema.GroupVersion
	resource string
	name     types.NamespacedName // its Name is empty for a collection
	sub      string               // the subresource
}

func (t target) group() schema.GroupResource {
	return schema.GroupResource{Group: t.version.Group, Resource: t.resource}
}

var apiVersion = regexp.MustCompile(`^v[1-9]`)

// targetOf parses a request's path, which may begin with the prefix of a proxy. It returns false for a request that is
// not about a resource.
func targetOf(req *http.Request) (target, bool) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	var t target
	for i, part := range parts {
		switch {
		case part == "api" && len(parts) > i+2 && apiVersion.MatchString(parts[i+1]):
			t.version.Version, parts = parts[i+1], parts[i+2:]
		case part == "apis" && len(parts) > i+3 && apiVersion.MatchString(parts[i+2]):
			t.version, parts = schema.GroupVersion{Group: parts[i+1], Version: parts[i+2]}, parts[i+3:]
		default:
			continue
		}
		break
	}
	if t.version.Version == "" {
		return target{}, false
	}
	if ofNamespace := len(parts) == 3 && slices.Contains([]string{"status", "finalize"},
		parts[2]); parts[0] == "namespaces" && len(parts) > 2 && !ofNamespace {
		t.name.Namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name.Name = parts[1]
	}
	t.sub = strings.Join(parts[min(2, len(parts)):], "/")
	return t, true
}

// silent are subresources whose POST does not change the object.
var silent = []string{"token", "exec", "attach", "portforward", "proxy", "log"}

// changes reports whether a write to the target changes an object.
func (t target) changes() bool {
	sub, _, _ := strings.Cut(t.sub, "/")
	return !slices.Contains(silent, sub)
}
