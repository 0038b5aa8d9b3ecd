package work

import "time"

// FailingAfter is how long all reconciles of a controller, or runs of a duty, must fail before that is reported.
// Backends fail for shorter times.
const FailingAfter = time.Minute

// Failing is what a controller comes to whose reconciles all fail, or a duty whose runs do.
type Failing struct {
	// For is the time since the first failure after the last success, and Times how often it failed since then.
	For   time.Duration
	Times int
	// Never says that none has succeeded since this process started.
	Never bool
	// Err is the last error; nil where a queue was only told to try again.
	Err error
}
