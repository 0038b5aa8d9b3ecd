package rota

import (
	"net/http"
	"strings"

	"github.com/rota-dev/rota/delivery"
)

// withSelectors returns the request of a sharded informer with the informer's selectors in it, where a ListerWatcher
// overwrote them with selectors of its own: both hold. Other requests are returned as they are.
func withSelectors(req *http.Request) *http.Request {
	want := delivery.SelectorsFrom(req.Context())
	if want == (delivery.Selectors{}) {
		return req
	}
	query := req.URL.Query()
	changed := false
	for parameter, selector := range map[string]string{"labelSelector": want.Label, "fieldSelector": want.Field} {
		if has := query.Get(parameter); !contains(has, selector) {
			query.Set(parameter, delivery.JoinSelectors(has, selector))
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

// contains says whether the requirements of a selector stand, in a row, in another. There are commas within them, too.
func contains(selector, part string) bool {
	return part == "" || strings.Contains(","+selector+",", ","+part+",")
}
