package journal

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now reads the machine's monotonic clock (CLOCK_MONOTONIC), which all processes share.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the clock is always there
	}
	return time.Duration(t.Nano())
}
