package writes

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// target is the resource and object in the path of a request.
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

// target parses the path of a request to a cluster, after the path of its config. It returns false for a request that
// is not about a resource.
//
// Without a config, any path may precede the path of the API, such as /k8s/clusters/NAME. Then the API begins at the
// first possible place, or after the last /proxy: an API server behind another one is a subresource there, such as
// /api/v1/namespaces/a/services/b/proxy.
func (c cluster) target(req *http.Request) (target, bool) {
	path := strings.Trim(req.URL.Path, "/")
	if c.host != "" {
		if t, ok := targetAt(strings.Split(strings.TrimPrefix(path, c.path+"/"), "/")); ok {
			return t, true
		}
	}
	return guess(strings.Split(path, "/"))
}

// guess parses a path with an unknown prefix.
func guess(parts []string) (t target, ok bool) {
	for i := range parts {
		if !ok || parts[i-1] == "proxy" {
			if behind, is := targetAt(parts[i:]); is {
				t, ok = behind, true
			}
		}
	}
	return t, ok
}

// targetAt parses a path of the API.
func targetAt(parts []string) (t target, ok bool) {
	switch {
	case parts[0] == "api" && len(parts) > 2 && apiVersion.MatchString(parts[1]):
		t.version.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3 && apiVersion.MatchString(parts[2]):
		t.version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return t, false
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

// reviews are the groups whose objects are only requests for an answer. The API server does not store them.
var reviews = []string{"authentication.k8s.io", "authorization.k8s.io"}

// changes reports whether a write to the target changes an object.
func (t target) changes() bool {
	sub, _, _ := strings.Cut(t.sub, "/")
	return !slices.Contains(silent, sub) && !slices.Contains(reviews, t.version.Group)
}
