package proxy

import (
	"net/http"
	"time"

	"github.com/rota-dev/rota/internal/cable"
)

// Faults are what the proxy does to requests. The zero value is nothing.
type Faults struct {
	// Delay is added to each request before it is sent on.
	Delay time.Duration
	// Delayed are the requests to which it is added; nil: all.
	Delayed func(*http.Request) bool
	// AnswerDelay is how long each answer is held back. The server has acted by then, whether or not the client waits.
	AnswerDelay time.Duration
	// BytesPerSecond is the rate at which answers come, for each connection; 0: as fast as they can.
	BytesPerSecond int
	// SwallowRequests holds back all bytes from the client, SwallowResponses all bytes to it: the server acts, and nobody
	// hears of it. What was held back arrives when this is over.
	SwallowRequests, SwallowResponses bool
	// Answers are given instead of the server's.
	Answers []Answer
	// CutWatches is how long after its start each watch ends. With TearWatches it ends in the middle of the first event
	// after that time.
	CutWatches, TearWatches time.Duration
	// RefuseWatches resets each new watch at once.
	RefuseWatches bool
	// DropBookmarks withholds the bookmarks of watches in JSON that begin from now on.
	DropBookmarks bool
	// StripShardSelector removes shard selectors from requests: an API server without the feature gate ignores them.
	StripShardSelector bool
}

// Answer is an error that a part of the requests gets.
type Answer struct {
	// Code is 429, 500, 403 (of an API server that has not read its roles yet), or 410, which only watches get.
	Code int
	// Share of the requests, from 0 to 1.
	Share float64
}

func (a Answer) concerns(r *http.Request) bool { return a.Code != http.StatusGone || cable.IsWatch(r) }

// reason is the API's word for a code.
var reason = map[int]string{
	http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError",
	http.StatusGone: "Expired", http.StatusForbidden: "Forbidden",
}

func (f Faults) concernWatches() bool {
	return f.CutWatches > 0 || f.TearWatches > 0 || f.RefuseWatches || f.DropBookmarks
}

// IsWrite says whether a request changes something.
func IsWrite(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	default:
		return true
	}
}
