package writes

import (
	"net/http"
	"strings"

	"github.com/rota-dev/rota/internal/delivery/feed"
)

// uncompressed has the API server not compress what it answers to the list of an informer of the share. With
// compression a list of Pods takes it more than twice as much processor time, and members list often: when slots come.
// A watch, and so the stream with which a stock informer begins, is never compressed. Other requests are returned
// unchanged.
func uncompressed(req *http.Request) *http.Request {
	if _, ours := feed.KindFrom(req.Context()); !ours || req.Header.Get("Accept-Encoding") != "" {
		return req
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "identity")
	return req
}

// hasty has an informer of the share hear at once that the API server is busy, or still fills its watch cache. Where an
// answer says Retry-After, client-go repeats the request up to ten times before its caller hears of it, and slots would
// wait for minutes for a kind that cannot be listed. Informers try again after a wait of their own. Answers to reads of
// one object, and other answers, are returned unchanged.
func hasty(req *http.Request, res *http.Response) *http.Response {
	_, ours := feed.KindFrom(req.Context())
	query := req.URL.Query()
	one := query.Get("limit") == "1" || strings.Contains(query.Get("fieldSelector"), "metadata.name=")
	if ours && !one && res != nil {
		res.Header.Del("Retry-After")
	}
	return res
}
