package writes

import (
	"net/http"
	"strings"

	"github.com/rota-dev/rota/internal/delivery/feed"
)

// uncompressed asks the API server not to compress its answers to the lists of the share's informers. Compression more
// than doubles the server's CPU time for a list of Pods, and members list whenever they get slots. Watches are never
// compressed, including the streaming list of a stock informer. Other requests are returned unchanged.
func uncompressed(req *http.Request) *http.Request {
	if _, ours := feed.KindFrom(req.Context()); !ours || req.Header.Get("Accept-Encoding") != "" {
		return req
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "identity")
	return req
}

// hasty removes Retry-After from answers to the share's informers, so that they see at once that the API server is busy
// or still fills its watch cache. With Retry-After, client-go repeats a request up to ten times before it returns the
// answer, and slots would wait for minutes for a kind that cannot be listed. Informers have their own backoff. Answers
// to reads of one object, and other answers, are returned unchanged.
func hasty(req *http.Request, res *http.Response) *http.Response {
	_, ours := feed.KindFrom(req.Context())
	query := req.URL.Query()
	one := query.Get("limit") == "1" || strings.Contains(query.Get("fieldSelector"), "metadata.name=")
	if ours && !one && res != nil {
		res.Header.Del("Retry-After")
	}
	return res
}
