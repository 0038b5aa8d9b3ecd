package wire

// Limits of requests. Larger requests are refused.
const (
	// MaxBody is the largest body, in bytes.
	MaxBody = 64 << 10
	// MaxWorker is the longest name of a worker, in bytes.
	MaxWorker = 253
	// MaxKeys is how many keys a worker may ask for at a time.
	MaxKeys = 1000
	// MaxTakes is how many takes a request may end or extend. MaxBody may allow fewer.
	MaxTakes = 100
	// MaxReason is how many bytes of DoneRequest.Reason are kept.
	MaxReason = 512
	// MaxWaitSeconds is how long a request may wait for keys.
	MaxWaitSeconds = 60
	// HeartbeatSeconds is how long a stream is silent at most.
	HeartbeatSeconds = 10
)
