package app

import "time"

// SetLook shortens the time between two looks whether d is set up rightly. Call it before Run.
func SetLook(d *Dispatcher, period time.Duration) { d.period = period }
