package elapsed

import (
	"time"

	"golang.org/x/sys/unix"
)

// counting reads CLOCK_BOOTTIME, which continues while the machine sleeps.
func counting() (time.Duration, bool) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, false
	}
	return time.Duration(now.Nano()), true
}
