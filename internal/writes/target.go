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

// target parses the path of a request to a cluster. It begins with the path of the config. target returns false for a
// request that is not about a resource.
//
// A client without a config may have any path before the API's, such as /k8s/clusters/NAME. There the API begins at the
// first place where one may, or behind the last /proxy: an API server that is reached through another one is a
// subresource there, such as /api/v1/namespaces/a/services/b/proxy.
func (c cluster) target(req *http.Request) (target, bool) {
	path := strings.Trim(req.URL.Path, "/")
	if c.host != "" {
		if t, ok := targetAt(strings.Split(strings.TrimPrefix(path, c.path+"/"), "/")); ok {
			return t, true
		}
	}
	return guess(strings.Split(path, "/"))
}

// guess parses a path that has something unknown before the API's.
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

// reviews are the groups whose objects are questions: the API server answers them, and stores nothing.
var reviews = []string{"authentication.k8s.io", "authorization.k8s.io"}

// changes reports whether a write to the target changes an object.
func (t target) changes() bool {
	sub, _, _ := strings.Cut(t.sub, "/")
	return !slices.Contains(silent, sub) && !slices.Contains(reviews, t.version.Group)
}
