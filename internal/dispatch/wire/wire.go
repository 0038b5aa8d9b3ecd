// Package wire defines the messages between workers and dispatchers, version 1. docs/dispatch.md specifies how they are
// used. All are JSON over HTTP. Times are in seconds and may have fractions.
//
// A dispatcher refuses unknown fields. A worker ignores them, since later dispatchers of this version may send more.
package wire

// Paths of version 1. Each takes a POST with a JSON object, except Stats, Failing and OpenAPI.
const (
	PathTake    = "/v1/take"
	PathStream  = "/v1/stream"
	PathCredit  = "/v1/credit"
	PathDone    = "/v1/done"
	PathExtend  = "/v1/extend"
	PathRelease = "/v1/release"
	PathStats   = "/v1/stats"
	PathFailing = "/v1/failing"
	PathOpenAPI = "/openapi.json"
)

// Content types.
const (
	TypeJSON    = "application/json"
	TypeStream  = "application/x-ndjson"
	TypeProblem = "application/problem+json"
)

// TakeRequest asks for keys. The answer is a TakeResponse.
type TakeRequest struct {
	// Worker names the worker: a Pod, or a thread of it. Required.
	Worker string `json:"worker"`
	// Kinds are the wanted kinds, as "KIND.GROUP", or "KIND" in the core group. Empty means all kinds of the dispatchers.
	Kinds []string `json:"kinds,omitempty"`
	// Max is the largest number of keys in the answer. 0 means 1.
	Max int `json:"max,omitempty"`
	// WaitSeconds is how long to wait for the first key. 0 means not at all.
	WaitSeconds float64 `json:"waitSeconds,omitempty"`
	// LengthSeconds is how long each take should last. It may be reduced. 0 means as configured in the dispatcher.
	LengthSeconds float64 `json:"lengthSeconds,omitempty"`
	// Affine asks to get the same keys again, as long as the worker keeps asking.
	Affine bool `json:"affine,omitempty"`
}

// TakeResponse has no takes if no keys were ready in time.
type TakeResponse struct {
	Takes []Take `json:"takes"`
}

// Take is a key that the worker holds until it ends the take, or the take expires.
type Take struct {
	// Token names the take in the requests below. It is a secret.
	Token     string `json:"token"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID and ResourceVersion are the object's when the dispatcher last saw it. They may be missing.
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Gone is true if the object was deleted.
	Gone bool `json:"gone,omitempty"`
	// Class is "changed" if the object changed, and "recent" or "opened" if its slot moved to the dispatcher, or a resync
	// is due.
	Class string `json:"class"`
	// Attempt counts from 1. It is above 1 if takes of the key have failed or expired since the last success.
	Attempt int `json:"attempt"`
	// Slot is the key's slot. Epoch is the slot's epoch, which rises each time the slot moves to another dispatcher.
	Slot  int    `json:"slot"`
	Epoch uint64 `json:"epoch"`
	// WaitedSeconds is how long the key was ready before the take.
	WaitedSeconds float64 `json:"waitedSeconds"`
	// ExpiresInSeconds is when the take expires, counted from when the worker sent the request. For a stream that is the
	// request that opened it.
	ExpiresInSeconds float64 `json:"expiresInSeconds"`
}

// StreamRequest asks for keys until the connection ends. The answer is one line of JSON for each StreamEvent.
type StreamRequest struct {
	Worker string   `json:"worker"`
	Kinds  []string `json:"kinds,omitempty"`
	// Credit is how many keys may come. CreditRequest adds to it.
	Credit        int     `json:"credit,omitempty"`
	LengthSeconds float64 `json:"lengthSeconds,omitempty"`
	Affine        bool    `json:"affine,omitempty"`
}

// StreamEvent has one field, or none if it only shows that the connection is alive.
type StreamEvent struct {
	// Stream names the stream in CreditRequest. It is the first event, and comes once.
	Stream string `json:"stream,omitempty"`
	Take   *Take  `json:"take,omitempty"`
	// End is the last event if the dispatcher ends the stream. It contains the reason. Open another stream.
	End string `json:"end,omitempty"`
}

// CreditRequest allows a stream more keys. The answer is 204.
type CreditRequest struct {
	Stream string `json:"stream"`
	Credit int    `json:"credit"`
}

// Results of DoneRequest.
const (
	ResultOK    = "ok"
	ResultRetry = "retry"
)

// DoneRequest ends a take. The answer is 204.
type DoneRequest struct {
	Token string `json:"token"`
	// Result is ResultOK, or ResultRetry if the work failed: the key then comes again after a delay that grows with each
	// failure. Empty means ResultOK.
	Result string `json:"result,omitempty"`
	// Reason is why the work failed, in one line. FailingKey shows it. MaxReason bytes of it are kept.
	Reason string `json:"reason,omitempty"`
	// AfterSeconds makes the key come again after this time even without a change. With ResultRetry it is the shortest
	// delay.
	AfterSeconds float64 `json:"afterSeconds,omitempty"`
}

// ExtendRequest extends a take. The answer is an ExtendResponse.
type ExtendRequest struct {
	Token string `json:"token"`
	// LengthSeconds is how long it should last from now on. It may be reduced. 0 means as configured in the dispatcher.
	LengthSeconds float64 `json:"lengthSeconds,omitempty"`
}

// ExtendResponse is how long the take lasts now.
type ExtendResponse struct {
	// ExpiresInSeconds is counted from when the worker sent the request.
	ExpiresInSeconds float64 `json:"expiresInSeconds"`
	// Draining is true if the key's slot is about to move to another dispatcher, so the worker should finish soon. The
	// take can be extended only for a limited time.
	Draining bool `json:"draining,omitempty"`
}

// DoneAllRequest ends several takes, from 1 to MaxTakes. It goes to PathDone, like DoneRequest. The answer is a
// DoneAllResponse. Each take is handled separately.
type DoneAllRequest struct {
	Takes []DoneRequest `json:"takes"`
}

// DoneAllResponse has an answer for each take, in the order of the request.
type DoneAllResponse struct {
	Takes []DoneAnswer `json:"takes"`
}

// DoneAnswer is the answer for one take of a DoneAllRequest.
type DoneAnswer struct {
	// Problem is what a DoneRequest would be answered with. It is missing if the take was ended.
	Problem *Problem `json:"problem,omitempty"`
}

// ExtendAllRequest extends several takes, from 1 to MaxTakes. It goes to PathExtend, like ExtendRequest. The answer is
// an ExtendAllResponse. Each take is handled separately.
type ExtendAllRequest struct {
	Takes []ExtendRequest `json:"takes"`
}

// ExtendAllResponse has an answer for each take, in the order of the request.
type ExtendAllResponse struct {
	Takes []ExtendAnswer `json:"takes"`
}

// ExtendAnswer is the answer for one take of an ExtendAllRequest.
type ExtendAnswer struct {
	// ExpiresInSeconds and Draining are as in ExtendResponse. They are 0 and false with a Problem.
	ExpiresInSeconds float64 `json:"expiresInSeconds"`
	Draining         bool    `json:"draining,omitempty"`
	// Problem is what an ExtendRequest would be answered with. It is missing if the take was extended.
	Problem *Problem `json:"problem,omitempty"`
}

// ReleaseRequest gives a take back as if it had not happened: another worker gets the key. The answer is 204.
type ReleaseRequest struct {
	Token string `json:"token"`
}

// Stats describe all dispatchers of the tier.
type Stats struct {
	// Dispatchers is how many there are, and Silent how many did not answer. The figures do not include those.
	Dispatchers int         `json:"dispatchers"`
	Silent      int         `json:"silent"`
	Kinds       []KindStats `json:"kinds"`
}

// KindStats describe the keys of a kind.
type KindStats struct {
	Kind string `json:"kind"`
	// Ready keys wait for a worker, Delayed keys for a time, and Taken keys are held by workers. Pending is Ready plus
	// Taken, limited for each dispatcher to what it hands out at a time. It is how many workers could be busy.
	Ready   int `json:"ready"`
	Delayed int `json:"delayed"`
	Taken   int `json:"taken"`
	Pending int `json:"pending"`
	// OldestSeconds is how long the oldest ready key has been ready. OldestChangedSeconds is the same for the class
	// "changed".
	OldestSeconds        float64 `json:"oldestSeconds"`
	OldestChangedSeconds float64 `json:"oldestChangedSeconds"`
}

// Failing lists the keys of all dispatchers whose last take failed or expired.
type Failing struct {
	// Dispatchers is how many there are, and Silent how many did not answer. The keys of those are missing.
	Dispatchers int `json:"dispatchers"`
	Silent      int `json:"silent"`
	// Total is the number of such keys. Keys are those that have failed for the longest time.
	Total int          `json:"total"`
	Keys  []FailingKey `json:"keys"`
}

// FailingKey is a key whose last take failed or expired.
type FailingKey struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Attempts is how many takes have failed or expired since the last success, and SinceSeconds is how long ago the first
	// of them did. Both start again when the key's slot moves to another dispatcher.
	Attempts     int     `json:"attempts"`
	SinceSeconds float64 `json:"sinceSeconds"`
	// LastSeconds is how long ago the last one failed. Reason is the worker's reason, or that the take expired.
	LastSeconds float64 `json:"lastSeconds"`
	Reason      string  `json:"reason,omitempty"`
	// Taken is true if a worker has the key now. Otherwise it comes again in NextSeconds, which is 0 if it is ready.
	Taken       bool    `json:"taken,omitempty"`
	NextSeconds float64 `json:"nextSeconds"`
}
