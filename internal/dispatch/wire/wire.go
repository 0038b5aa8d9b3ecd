// Package wire has the messages between workers and dispatchers, version 1. docs/dispatch.md specifies how they are
// used. All are JSON over HTTP. Times are seconds, and may have fractions.
//
// A dispatcher refuses fields that it does not know. A worker ignores them, since later dispatchers of this version may
// send more.
package wire

// Paths of version 1. Each takes a POST with a JSON object, but for Stats, Failing and OpenAPI.
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

// Types of content.
const (
	TypeJSON    = "application/json"
	TypeStream  = "application/x-ndjson"
	TypeProblem = "application/problem+json"
)

// Limits of requests. A request beyond them is refused.
const (
	// MaxBody is the largest body, in bytes.
	MaxBody = 64 << 10
	// MaxWorker is how many bytes the name of a worker may have.
	MaxWorker = 253
	// MaxKeys is how many keys may be asked for at a time.
	MaxKeys = 1000
	// MaxTakes is how many takes a request may end or extend. MaxBody may allow fewer.
	MaxTakes = 100
	// MaxReason is how many bytes of DoneRequest.Reason are kept.
	MaxReason = 512
	// MaxWaitSeconds is how long a worker may wait for keys, each time.
	MaxWaitSeconds = 60
	// HeartbeatSeconds is how long a stream is silent at most.
	HeartbeatSeconds = 10
)

// TakeRequest asks for keys. The answer is a TakeResponse.
type TakeRequest struct {
	// Worker names who asks: a Pod, or a thread of it. It must be there.
	Worker string `json:"worker"`
	// Kinds are those of which keys are wanted, as "KIND.GROUP", or "KIND" in the core group. Empty: all that the
	// dispatchers have.
	Kinds []string `json:"kinds,omitempty"`
	// Max is how many keys are wanted at most; 0: 1.
	Max int `json:"max,omitempty"`
	// WaitSeconds is how long to wait for the first key. 0: answer at once.
	WaitSeconds float64 `json:"waitSeconds,omitempty"`
	// LengthSeconds is how long each take should last. 0: as long as the dispatcher has configured. It may be cut.
	LengthSeconds float64 `json:"lengthSeconds,omitempty"`
	// Affine asks for the same keys again, as long as the worker keeps asking.
	Affine bool `json:"affine,omitempty"`
}

// TakeResponse has no takes if there were none in time.
type TakeResponse struct {
	Takes []Take `json:"takes"`
}

// Take is a key that the worker has until it says that it is done, or the take expires.
type Take struct {
	// Token names the take in the requests below. It is a secret.
	Token     string `json:"token"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID and ResourceVersion are those of the object when the dispatcher last heard of it. They may be missing.
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Gone says that the object was deleted.
	Gone bool `json:"gone,omitempty"`
	// Class is "changed" if the object changed, "recent" or "opened" if its slot came to the dispatcher, or it is time to
	// look at it again.
	Class string `json:"class"`
	// Attempt counts from 1. It is above 1 if takes of the key have failed or expired since one succeeded.
	Attempt int `json:"attempt"`
	// Slot and Epoch are the slot and its epoch. The epoch rises each time the slot goes to another dispatcher.
	Slot  int    `json:"slot"`
	Epoch uint64 `json:"epoch"`
	// WaitedSeconds is how long the key had been ready.
	WaitedSeconds float64 `json:"waitedSeconds"`
	// ExpiresInSeconds is when the take expires, counted from when the worker sent the request. In a stream that is the
	// request that opened it.
	ExpiresInSeconds float64 `json:"expiresInSeconds"`
}

// StreamRequest asks for keys until the connection ends. The answer is a line of JSON for each StreamEvent.
type StreamRequest struct {
	Worker string   `json:"worker"`
	Kinds  []string `json:"kinds,omitempty"`
	// Credit is how many keys may come; CreditRequest adds to it.
	Credit        int     `json:"credit,omitempty"`
	LengthSeconds float64 `json:"lengthSeconds,omitempty"`
	Affine        bool    `json:"affine,omitempty"`
}

// StreamEvent has one of its fields, or none: then it only shows that the connection is alive.
type StreamEvent struct {
	// Stream names the stream in CreditRequest. It comes first, and once.
	Stream string `json:"stream,omitempty"`
	Take   *Take  `json:"take,omitempty"`
	// End comes last if the dispatcher ends the stream, and says why. Open another one.
	End string `json:"end,omitempty"`
}

// CreditRequest lets a stream have more keys. The answer is 204.
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
	// Result is ResultOK, or ResultRetry if the work failed: the key comes again after a delay that grows with each
	// failure. Empty: ResultOK.
	Result string `json:"result,omitempty"`
	// Reason is why the work failed, in a line: FailingKey has it. MaxReason bytes of it are kept.
	Reason string `json:"reason,omitempty"`
	// AfterSeconds has the key come again after that time. With ResultRetry it is the least delay.
	AfterSeconds float64 `json:"afterSeconds,omitempty"`
}

// ExtendRequest has a take last longer. The answer is an ExtendResponse.
type ExtendRequest struct {
	Token string `json:"token"`
	// LengthSeconds is how long it should last from now on; 0: as long as the dispatcher has configured. It may be cut.
	LengthSeconds float64 `json:"lengthSeconds,omitempty"`
}

// ExtendResponse tells how long the take lasts now.
type ExtendResponse struct {
	// ExpiresInSeconds is counted from when the worker sent the request.
	ExpiresInSeconds float64 `json:"expiresInSeconds"`
	// Draining says that the key's slot is about to go to another dispatcher: finish soon. How long it can still be
	// extended is limited.
	Draining bool `json:"draining,omitempty"`
}

// DoneAllRequest ends several takes, from 1 to MaxTakes. It goes to PathDone, as DoneRequest does. The answer is a
// DoneAllResponse: each take is ended or not as if it were alone.
type DoneAllRequest struct {
	Takes []DoneRequest `json:"takes"`
}

// DoneAllResponse has an answer for each take, in the order of the request.
type DoneAllResponse struct {
	Takes []DoneAnswer `json:"takes"`
}

// DoneAnswer is what a DoneRequest is answered with among others.
type DoneAnswer struct {
	// Problem is what DoneRequest alone would have been answered with. Missing: the take has ended so.
	Problem *Problem `json:"problem,omitempty"`
}

// ExtendAllRequest has several takes last longer, from 1 to MaxTakes. It goes to PathExtend, as ExtendRequest does. The
// answer is an ExtendAllResponse: each take is extended or not as if it were alone.
type ExtendAllRequest struct {
	Takes []ExtendRequest `json:"takes"`
}

// ExtendAllResponse has an answer for each take, in the order of the request.
type ExtendAllResponse struct {
	Takes []ExtendAnswer `json:"takes"`
}

// ExtendAnswer is what an ExtendRequest is answered with among others.
type ExtendAnswer struct {
	// ExpiresInSeconds and Draining are those of ExtendResponse, and 0 and false with a Problem.
	ExpiresInSeconds float64 `json:"expiresInSeconds"`
	Draining         bool    `json:"draining,omitempty"`
	// Problem is what ExtendRequest alone would have been answered with. Missing: the take was extended.
	Problem *Problem `json:"problem,omitempty"`
}

// ReleaseRequest ends a take as if it had not been: another worker gets the key. The answer is 204.
type ReleaseRequest struct {
	Token string `json:"token"`
}

// Stats describe all dispatchers of the tier.
type Stats struct {
	// Dispatchers is how many there are, and Silent how many of them did not answer: the figures are without theirs.
	Dispatchers int         `json:"dispatchers"`
	Silent      int         `json:"silent"`
	Kinds       []KindStats `json:"kinds"`
}

// KindStats describe the keys of a kind.
type KindStats struct {
	Kind string `json:"kind"`
	// Ready keys wait for a worker, Delayed ones for a time, Taken ones are at a worker. Pending are Ready and Taken, but
	// of no dispatcher more than it hands out at a time: how many workers could be busy.
	Ready   int `json:"ready"`
	Delayed int `json:"delayed"`
	Taken   int `json:"taken"`
	Pending int `json:"pending"`
	// OldestSeconds is for how long the oldest ready key has been ready, and OldestChangedSeconds the oldest of class
	// "changed".
	OldestSeconds        float64 `json:"oldestSeconds"`
	OldestChangedSeconds float64 `json:"oldestChangedSeconds"`
}

// Failing has the keys of all dispatchers whose last take failed or expired.
type Failing struct {
	// Dispatchers is how many there are, and Silent how many of them did not answer: their keys are missing.
	Dispatchers int `json:"dispatchers"`
	Silent      int `json:"silent"`
	// Total is how many such keys there are. Keys has those that have failed for longest.
	Total int          `json:"total"`
	Keys  []FailingKey `json:"keys"`
}

// FailingKey is a key whose last take failed or expired.
type FailingKey struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Attempts is how many takes have failed or expired since one succeeded, and SinceSeconds is how long ago the first of
	// them did. Both begin again when the key's slot goes to another dispatcher.
	Attempts     int     `json:"attempts"`
	SinceSeconds float64 `json:"sinceSeconds"`
	// LastSeconds is how long ago the last one did, and Reason is why: the worker's, or that the take expired.
	LastSeconds float64 `json:"lastSeconds"`
	Reason      string  `json:"reason,omitempty"`
	// Taken says that a worker has the key now. Otherwise it comes again in NextSeconds; 0: it is ready.
	Taken       bool    `json:"taken,omitempty"`
	NextSeconds float64 `json:"nextSeconds"`
}
