package sim

import "time"

// server is one of the two API servers of a world. Writes and consistent reads are the same at both; what one shows to
// watches, and to reads that take any version, may be older than what the other does.
type server struct {
	// lag is how far behind it is. What changed at from or later is not shown before until.
	lag         time.Duration
	from, until time.Duration
	// down: until then it answers nobody.
	down time.Duration
}

// shows is when the server shows what changed at a time.
func (s *server) shows(changed time.Duration) time.Duration {
	at := changed + s.lag
	if changed >= s.from {
		at = max(at, s.until)
	}
	return at
}

// changedAt is when a change of the table or the Leases was made.
func (w *World) changedAt(version uint64) time.Duration { return w.changed[version-1] }

// other is a server that answers: the other one, if that does.
func (w *World) other(s int) int {
	if o := 1 - s; w.servers[o].down <= w.now {
		return o
	}
	return s
}

// breakServer ends the connections of a server, which takes no new ones for d.
func (w *World) breakServer(s int, d time.Duration) {
	w.servers[s].down = w.now + d
	for _, n := range w.Live() {
		if n.Link.server == s && w.chance(0.7) {
			n.Link.server = w.other(s)
		}
		for _, f := range []*Feed{n.Link.tables, n.Link.leases} {
			if f != nil && f.server == s {
				f.cut()
			}
		}
		if n.informer.server == s {
			n.informer.cut()
		}
	}
}

// compact forgets the history: who follows from an earlier position must list again.
func (w *World) compact() {
	w.Objects.Forget()
	w.objects.compacted = w.version
}
