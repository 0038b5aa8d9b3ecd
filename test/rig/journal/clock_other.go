//go:build !linux

package journal

import "time"

// Now reads the machine's clock. It is not monotonic here: do not set the clock while a demo runs.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }
