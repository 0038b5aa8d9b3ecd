package work

import "time"

// FailingAfter is how long all reconciles of a controller, or all runs of a duty, must fail before that is reported.
// Backends often fail for shorter times.
const FailingAfter = time.Minute

// Failing describes a controller whose reconciles all fail, or a duty whose runs do.
type Failing struct {
	// For is the time since the first failure after the last success, and Times how often it failed since then.
	For   time.Duration
	Times int
	// Never is true if none has succeeded since this process started.
	Never bool
	// Err is the last error, nil if a key was only added again with a backoff.
	Err error
}
