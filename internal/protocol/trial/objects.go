package trial

import "time"

// Objects are a Tally that knows its objects. The zero value has none. Methods must not be called concurrently.
type Objects[K comparable] struct {
	Tally
	seen map[K]seen
}

// seen says what was counted of an object.
type seen struct{ arrived, changed, failed bool }

// MostObjects is how many objects are told apart. Tries of others do not count: a step may last for weeks.
const MostObjects = 1 << 16

// Try counts a try of an object: whether a handover brought it, how long it took beside how many others, and whether it
// failed.
func (o *Objects[K]) Try(key K, arrived bool, took time.Duration, beside int, failed bool) {
	of, known := o.seen[key]
	switch {
	case !known && len(o.seen) >= MostObjects:
		return
	case o.seen == nil:
		o.seen = map[K]seen{}
	}
	if o.Tries++; !known {
		o.Seen++
	}
	switch {
	case arrived && !of.arrived:
		of.arrived = true
		o.arrive(failed)
	case !arrived && !of.changed:
		of.changed, of.failed = true, failed
		o.change(took, beside, failed)
	case !arrived && failed && !of.failed:
		of.failed = true
		o.Failed++
	}
	o.seen[key] = of
}
