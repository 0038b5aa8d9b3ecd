package writes

import (
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	klabels "k8s.io/apimachinery/pkg/labels"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
)

// withSelectors returns the request of a sharded informer with the informer's selectors. If a ListerWatcher replaced
// them, both apply. Other requests are returned unchanged.
func withSelectors(req *http.Request) *http.Request {
	want, shard := feed.SelectorsFrom(req.Context()), feed.ShardSelectorFrom(req.Context())
	if want == (sharding.Selectors{}) && shard == "" {
		return req
	}
	query := req.URL.Query()
	changed := false
	if shard != "" {
		query.Set(clientgo.ShardSelectorParameter, shard)
		changed = true
	}
	for _, s := range []struct {
		parameter, want string
		requires        func(selector string) []string
	}{{"labelSelector", want.Label, labelRequirements}, {"fieldSelector", want.Field, fieldRequirements}} {
		if has := query.Get(s.parameter); !contains(has, s.want, s.requires) {
			query.Set(s.parameter, sharding.JoinSelectors(has, s.want))
			changed = true
		}
	}
	if !changed {
		return req
	}
	req = req.Clone(req.Context())
	req.URL.RawQuery = query.Encode()
	return req
}

// usersSelectors returns the selectors of an informer's request without the informer's selectors.
func usersSelectors(req *http.Request) sharding.Selectors {
	own, query := feed.SelectorsFrom(req.Context()), req.URL.Query()
	return sharding.Selectors{
		Label: without(query.Get("labelSelector"), own.Label, labelRequirements),
		Field: without(query.Get("fieldSelector"), own.Field, fieldRequirements),
	}
}

// without returns a selector without the requirements of another.
func without(selector, part string, requires func(selector string) []string) string {
	if selector == "" {
		return ""
	}
	own := requires(part)
	return sharding.JoinSelectors(slices.DeleteFunc(requires(selector),
		func(r string) bool { return slices.Contains(own, r) })...)
}

// contains reports whether a selector has all requirements of another.
func contains(selector, part string, requires func(selector string) []string) bool {
	if part == "" || part == selector {
		return true
	}
	has := requires(selector)
	for _, r := range requires(part) {
		if !slices.Contains(has, r) {
			return false
		}
	}
	return true
}

// labelRequirements returns the requirements of a selector, each in its canonical form. A selector that cannot be
// parsed is returned as one requirement, so that the API server rejects it.
func labelRequirements(selector string) []string {
	parsed, err := klabels.Parse(selector)
	if err != nil {
		return []string{selector}
	}
	all, _ := parsed.Requirements()
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = r.String()
	}
	return out
}

func fieldRequirements(selector string) []string {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return []string{selector}
	}
	all := parsed.Requirements()
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = fields.EscapeValue(r.Field) + string(r.Operator) + fields.EscapeValue(r.Value)
	}
	return out
}
