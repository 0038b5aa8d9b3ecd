package writes

import (
	"net/http"

	"github.com/rota-dev/rota/internal/delivery"
)

// uncompressed has the API server not compress what it answers to the list of an informer of the share. With
// compression a list of Pods takes it more than twice as much processor time, and members list often: when slots come.
// A watch, and so the stream with which a stock informer begins, is never compressed. Other requests are returned
// unchanged.
func uncompressed(req *http.Request) *http.Request {
	if _, ours := delivery.KindFrom(req.Context()); !ours || req.Header.Get("Accept-Encoding") != "" {
		return req
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "identity")
	return req
}
