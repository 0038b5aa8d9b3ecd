package trial

import "time"

// Objects is a Tally that counts each object once. The zero value is ready to use. Methods must not be called
// concurrently.
type Objects[K comparable] struct {
	Tally
	seen map[K]seen
}

// seen records what was counted for an object.
type seen struct{ arrived, changed, failed bool }

// MostObjects is the largest number of objects that are tracked. Tries of further objects do not count, since a step
// may last for weeks.
const MostObjects = 1 << 16

// Try counts a try of an object. arrived is set if a handover brought the object, took is how long the try took, and
// beside is how many other tries ran at the same time.
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
