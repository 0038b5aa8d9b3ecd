package writes

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	klabels "k8s.io/apimachinery/pkg/labels"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/require"
)

// joined returns the selectors that arrive in a request whose informer wants some and whose ListerWatcher wrote others.
func joined(t *testing.T, wrote, want sharding.Selectors) (label, field string) {
	t.Helper()
	query := url.Values{"labelSelector": {wrote.Label}, "fieldSelector": {wrote.Field}}
	ctx := feed.WithSelectors(t.Context(), want)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server/api?"+query.Encode(), http.NoBody)
	require.NoError(t, err)
	got := withSelectors(req).URL.Query()
	return got.Get("labelSelector"), got.Get("fieldSelector")
}

func TestSelectorsAreJoined(t *testing.T) {
	for _, c := range []struct{ wrote, want, joined string }{
		{"", "", ""},
		{"a=b", "", "a=b"},
		{"", "rota.dev/hash>15", "rota.dev/hash>15"},
		{"a=b", "rota.dev/hash>15", "a=b,rota.dev/hash>15"},
		{"rota.dev/hash>15,a=b", "rota.dev/hash>15", "rota.dev/hash>15,a=b"},
		{"a in (a,b,c)", "b", "a in (a,b,c),b"}, // b stands in it, and is none of its requirements
		{"x in (1,2)", "x in (2,1)", "x in (1,2)"},
	} {
		if got, _ := joined(t, sharding.Selectors{Label: c.wrote}, sharding.Selectors{Label: c.want}); got != c.joined {
			t.Errorf("%q with %q: %q, want %q", c.wrote, c.want, got, c.joined)
		}
	}
	if _, got := joined(t, sharding.Selectors{Field: "a=x"},
		sharding.Selectors{Field: "metadata.name=y"}); got != "a=x,metadata.name=y" {
		t.Errorf("field selectors: %q", got)
	}
}

// What remains of a request without the informer's own selectors is what its user asks for.
func TestSelectorsOfTheUser(t *testing.T) {
	for _, c := range []struct{ sent, own, user string }{
		{"", "", ""},
		{"", "rota.dev/hash>15", ""},
		{"rota.dev/hash>15", "rota.dev/hash>15", ""},
		{"a=b", "rota.dev/hash>15", "a=b"},
		{"a=b,rota.dev/hash>15,rota.dev/hash<99", "rota.dev/hash>15,rota.dev/hash<99", "a=b"},
		{"x in (1,2),a in (b,c)", "a in (c,b)", "x in (1,2)"},
	} {
		query := url.Values{"labelSelector": {c.sent}, "fieldSelector": {"spec.type=x,metadata.name=y"}}
		ctx := feed.WithSelectors(t.Context(), sharding.Selectors{Label: c.own, Field: "metadata.name=y"})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server/api?"+query.Encode(), http.NoBody)
		require.NoError(t, err)
		if got, want := usersSelectors(req), (sharding.Selectors{Label: c.user, Field: "spec.type=x"}); got != want {
			t.Errorf("%q without %q: %+v, want %+v", c.sent, c.own, got, want)
		}
	}
}

// FuzzSelectors: what arrives selects what both selectors select, and nothing else.
func FuzzSelectors(f *testing.F) {
	f.Add("a=b", "rota.dev/hash>15,rota.dev/hash notin (17,18)", "a", "b")
	f.Add("a in (a,b,c)", "b", "b", "")
	f.Add("!a", "a", "a", "x")
	f.Add("a=1,b=2", "b=2,a=1", "b", "2")
	f.Add(`a=x\,b`, `b=1`, "a", "x,b")
	f.Fuzz(func(t *testing.T, wrote, want, name, value string) {
		if strings.Contains(wrote+want, "\x00") {
			return // the end of a selector, to Kubernetes' lexer
		}
		label, field := joined(t, sharding.Selectors{Label: wrote, Field: wrote},
			sharding.Selectors{Label: want, Field: want})
		first, err1 := klabels.Parse(wrote)
		second, err2 := klabels.Parse(want)
		if err1 == nil && err2 == nil {
			both, err := klabels.Parse(label)
			if err != nil {
				t.Fatalf("%q and %q become %q: %v", wrote, want, label, err)
			}
			for _, set := range []klabels.Set{nil, {name: value}, {name: "", value: name}} {
				if got, expect := both.Matches(set), first.Matches(set) && second.Matches(set); got != expect {
					t.Errorf("%q and %q become %q: %v is selected: %v, want %v", wrote, want, label, set, got, expect)
				}
			}
		}
		one, err1 := fields.ParseSelector(wrote)
		two, err2 := fields.ParseSelector(want)
		if err1 != nil || err2 != nil || strings.TrimSpace(wrote) != wrote || strings.TrimSpace(want) != want {
			return // field selectors keep their spaces, and nobody has any in them
		}
		both, err := fields.ParseSelector(field)
		if err != nil {
			t.Fatalf("%q and %q become %q: %v", wrote, want, field, err)
		}
		for _, set := range []fields.Set{nil, {name: value}, {value: name}} {
			if got, expect := both.Matches(set), one.Matches(set) && two.Matches(set); got != expect {
				t.Errorf("%q and %q become %q: %v is selected: %v, want %v", wrote, want, field, set, got, expect)
			}
		}
	})
}
