package duty

import "time"

const (
	// A duty that failed starts again after restartFirst, and after twice the time with each failure, up to restartMost. A
	// run as long as restartMost counts as a success.
	restartFirst = time.Second
	restartMost  = 5 * time.Minute
)

// serve runs the duty until it has finished or the term is over.
func (d *Duty) serve(t *term) {
	delay := restartFirst
	for {
		again, long := d.once(t)
		if !again {
			return
		}
		if long {
			delay = restartFirst
		}
		select {
		case <-time.After(delay):
		case <-t.over:
			return
		}
		delay = min(2*delay, restartMost)
		d.mu.Lock()
		d.restarts++
		d.mu.Unlock()
	}
}
