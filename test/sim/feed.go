package sim

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/test/store/memory"
)

// Feed is one watch of a node: the state at first, then every change, in order, each after a delay.
type Feed struct {
	n *Node
	// wanted says which changes it is about; list reports the state, change a change.
	wanted func(memory.Change) bool
	list   func() member.Event
	change func(memory.Change) member.Event
	last   time.Duration
	// stalled until then.
	until time.Duration
	// blocked keeps everything back, in waiting.
	blocked bool
	waiting []func()
	// breaks tells what was sent before the last relist; listed: its answer was taken.
	breaks int
	listed bool
	// server is the one that serves the watch, pos the version up to which it was received.
	server int
	pos    uint64
}

// follow replaces a feed by a new one.
func (l *link) follow(f *Feed) *Feed {
	f.n = l.n
	f.relist()
	return f
}

// relist reports the state anew; changes on their way are lost.
func (f *Feed) relist() {
	if f.list == nil {
		return // of a member that has stopped
	}
	f.breaks++
	f.waiting, f.listed = nil, false
	mine := f.breaks
	w := f.n.w
	w.after(w.delay(time.Millisecond, 20*time.Millisecond), func() {
		if f.breaks != mine {
			return
		}
		if !f.reach() {
			f.relist()
			return
		}
		e := f.list()
		f.listed = true
		f.forward(w.Objects.Version(), w.now, func() member.Event { return e })
	})
}

// cut breaks the watch. It goes on from its position after a moment, at whichever server answers, or lists where that
// position is compacted.
func (f *Feed) cut() {
	if f.list == nil {
		return
	}
	f.breaks++
	f.listed = false
	mine := f.breaks
	w := f.n.w
	w.after(w.between(30*time.Millisecond, 2*time.Second), func() {
		if f.breaks != mine || f.n.Dead {
			return
		}
		if w.chance(0.5) {
			f.server = w.other(f.server)
		}
		if !f.reach() {
			f.cut()
			return
		}
		changes, ok := w.Objects.Since(f.pos)
		if !ok || f.pos == 0 {
			w.Counts.Compacted++
			w.logf("a watch of %s must list again: 410", f.n.ID)
			f.relist()
			return
		}
		f.listed = true
		for _, c := range changes {
			f.offer(c)
		}
	})
}

// reach says whether a server answers, and turns to that.
func (f *Feed) reach() bool {
	w := f.n.w
	if w.servers[f.server].down > w.now {
		f.server = w.other(f.server)
	}
	return w.servers[f.server].down <= w.now
}

// offer reports a change.
func (f *Feed) offer(c memory.Change) {
	if f.listed && f.wanted(c) {
		f.n.w.Messages.Events++
		if c.Table != nil {
			f.n.w.Messages.Tables++
			if !f.n.w.wild {
				f.n.w.Messages.TableBytes += f.n.w.sizeOf(*c.Table)
			}
		}
		shown := f.n.w.servers[f.server].shows(f.n.w.changedAt(c.Version))
		f.forward(c.Version, shown, func() member.Event { return f.change(c) })
	}
}

// forward reports what is so since a version, and is shown by the server from a time on.
func (f *Feed) forward(version uint64, shown time.Duration, event func() member.Event) {
	w := f.n.w
	if f.blocked {
		f.keep(event)
		return
	}
	mine := f.breaks
	f.last = max(f.last, f.until, shown, w.now+w.delay(time.Millisecond, 30*time.Millisecond))
	w.at(f.last, func() {
		switch {
		case f.breaks != mine || f.n.Dead || f != f.n.Link.tables && f != f.n.Link.leases:
		case f.blocked:
			f.keep(event)
		default:
			f.pos = version
			f.n.post(event())
		}
	})
}

// keep puts a report on the list of those that wait.
func (f *Feed) keep(event func() member.Event) {
	f.waiting = append(f.waiting, func() { f.n.local(func() { f.n.post(event()) }) })
}

// Block keeps a feed silent; Unblock lets it report all it missed.
func (f *Feed) Block() { f.blocked = true }

// Unblock ends Block.
func (f *Feed) Unblock() {
	f.blocked = false
	waiting := f.waiting
	f.waiting = nil
	for _, do := range waiting {
		do()
	}
}

// Tables and Leases are the node's watches.
func (l *link) Tables() *Feed { return l.tables }

// Leases is the node's watch of Leases, nil before there is one.
func (l *link) Leases() *Feed { return l.leases }

func (l *link) followTable() {
	l.w.Messages.Requests["watch table"]++
	l.tables = l.follow(&Feed{
		server: l.server,
		wanted: func(c memory.Change) bool { return c.Table != nil },
		list: func() member.Event {
			l.w.Messages.Listed++
			return member.TableSeen{Snapshot: l.n.reads(l.w.Objects.Table()), Listed: true}
		},
		change: func(c memory.Change) member.Event { return member.TableSeen{Snapshot: l.n.reads(*c.Table)} },
	})
}

func (l *link) followLeases(a member.WatchLeases) {
	l.w.Messages.Requests["watch leases"]++
	wanted := func(id string) bool { return a.All || slices.Contains(a.IDs, id) }
	old := l.leases
	f := &Feed{
		wanted: func(c memory.Change) bool {
			return c.Gone != "" && wanted(c.Gone) || c.Lease != nil && wanted(c.Lease.ID)
		},
		list: func() member.Event {
			seen := member.LeasesSeen{Complete: true, Watch: a.Serial}
			for _, lease := range l.w.Objects.Leases() {
				if wanted(lease.ID) {
					seen.Leases = append(seen.Leases, lease)
				}
			}
			l.w.Messages.Listed += len(seen.Leases)
			return seen
		},
		change: func(c memory.Change) member.Event {
			if c.Gone != "" {
				return member.LeasesSeen{Gone: []string{c.Gone}, Watch: a.Serial}
			}
			return member.LeasesSeen{Leases: []member.Lease{*c.Lease}, Watch: a.Serial}
		},
	}
	if old != nil {
		f.blocked, f.until = old.blocked, old.until
	}
	f.server = l.server
	l.leases = f
	l.follow(f)
}

// Sync tells the watches, and those who check, what changed in the objects.
func (w *World) Sync() {
	changes, _ := w.Objects.Since(w.synced)
	for _, c := range changes {
		w.synced = c.Version
		w.changed = append(w.changed, w.now)
		w.checkChange(c)
		for _, n := range w.Nodes {
			if n.Dead {
				continue
			}
			n.Link.tables.offer(c)
			if n.Link.leases != nil {
				n.Link.leases.offer(c)
			}
		}
	}
}
