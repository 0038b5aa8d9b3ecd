package labeller

import "time"

// maxWaiting bounds the objects that wait in a grace. Beyond it, the oldest continue at once.
const maxWaiting = 1024

// grace holds back objects from the watch for Options.Grace, in order of arrival.
type grace struct {
	period time.Duration
	queue  []waiting
	latest map[target]target // the objects in the queue that still have a wrong label
}

type waiting struct {
	object target
	since  time.Time
}

// add makes an object with a wrong label wait. It may be called again for the same object.
func (g *grace) add(t target, now time.Time) {
	if g.latest == nil {
		g.latest = map[target]target{}
	}
	object := t.object()
	if _, waits := g.latest[object]; !waits {
		g.queue = append(g.queue, waiting{object, now})
	}
	g.latest[object] = t
}

// drop removes an object whose label is right or that is gone.
func (g *grace) drop(t target) { delete(g.latest, t.object()) }

// next returns an object whose wait is over, or the time until the next one, negative if none waits.
func (g *grace) next(now time.Time) (target, time.Duration) {
	for len(g.queue) > 0 {
		first := g.queue[0]
		t, wrong := g.latest[first.object]
		if left := g.period - now.Sub(first.since); wrong && left > 0 && len(g.latest) <= maxWaiting {
			return target{}, left
		}
		g.queue = g.queue[1:]
		if wrong {
			delete(g.latest, first.object)
			return t, 0
		}
	}
	g.queue = nil
	return target{}, -1
}
