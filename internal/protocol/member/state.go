package member

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/inspect"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// This file has what the exhaustive check (test/explore) must know about a member's state. Say here what a new
// field means. TestEveryFieldIsVisited fails otherwise.

func init() {
	inspect.Copy = func(m any) any { return m.(*Member).clone() }
	inspect.Forget = func(m any) { m.(*Member).forget() }
	inspect.Visit = func(m any, v inspect.Visitor) { m.(*Member).visit(v) }
	inspect.Look = func(m any) inspect.Status { return m.(*Member).look() }
}

// clone returns a copy without caches. It shares the source of jitter, and what never changes: tables, versions, names
// of deletions, the last assignment.
func (m *Member) clone() *Member {
	c := *m
	c.out, c.candidates, c.ahead = nil, candidates{}, ahead{}
	c.gone, c.epochs = maps.Clone(m.gone), maps.Clone(m.epochs)
	c.toExpel, c.deleting = maps.Clone(m.toExpel), maps.Clone(m.deleting)
	c.slots = slices.Clone(m.slots)
	c.watch.ids = slices.Clone(m.watch.ids)
	c.watch.others = make(map[string]*other, len(m.watch.others))
	for id, o := range m.watch.others {
		copied := *o
		c.watch.others[id] = &copied
	}
	c.plan.seen = maps.Clone(m.plan.seen)
	return &c
}

// forget sets to 0 what will be set again before it is used.
func (m *Member) forget() {
	l, w, tr, s, p := &m.lease, &m.watch, &m.trail, &m.swap, &m.plan
	m.out, m.candidates, m.ahead = nil, candidates{}, ahead{} // slots listed ahead are listed again
	if l.mine.UID == "" {
		l.start = 0
	}
	if !l.said || l.open {
		l.saidAt = 0
	}
	if w.capped {
		w.step = 0
	}
	for _, o := range w.others {
		if o.missing {
			o.lease = Lease{}
		}
		o.lease.Epoch = min(o.lease.Epoch, 1) // 0 or not
		if o.pending {
			o.since = 0
		} else {
			o.seen = 0
		}
		if o.missing || o.lease.Open || o.shutting {
			o.shut = 0
		}
	}
	if !m.recovery.on || m.recovery.pending {
		m.recovery.since = 0
	}
	// Versions come in order, and a list has the latest. So versions between the one known and the table do not matter.
	behind := func(v string) bool { return resourceversion.Compare(v, m.snap.Version) < 0 }
	if tr.begun == "" && behind(tr.known) || m.snap.Version == "" {
		tr.known = ""
	}
	if behind(w.since) && (w.complete || tr.begun == "" || resourceversion.Compare(w.since, tr.begun) < 0) {
		w.since = ""
	}
	for i := range m.slots {
		s := &m.slots[i]
		if s.state != sent {
			s.sentAt = 0
		}
		if s.state != warming && s.state != loading && s.state != draining {
			s.round = 0
		}
		if s.state != fenced {
			s.until = 0
		}
		if s.state != drained && s.state != sent && s.state != draining {
			s.shut = false
		}
		if s.state != drained && s.state != sent {
			s.cause, s.gone, s.versions = table.CauseUnknown, nil, nil
		}
	}
	if !s.underWay {
		s.serial, s.version = 0, ""
	}
	if !m.canaries.asked {
		m.canaries.serial = 0
	}
	if s.refused != m.snap.Version {
		s.refused = ""
	}
	if behind(s.unknown) {
		s.unknown = ""
	}
	if m.followed != m.snap.Version {
		m.followed = ""
	}
	if p.looked != m.snap.Version {
		p.looked, p.lookedDead = "", 0
	}
	if version, _, _ := strings.Cut(p.key, " "); version != m.snap.Version {
		p.key, p.target = "", nil
	}
}

// visit shows the state. It leaves out caches, the count of conflicts (which only makes jitter), the versions that a
// drain found (no decision depends on them), and fields of Leases, of the snapshot and of the config that nobody reads.
func (m *Member) visit(v inspect.Visitor) {
	c := &m.cfg
	v.Texts(c.Self.ID)
	v.Ints(len(c.Former))
	v.Texts(c.Former...)
	v.Wake(&m.wake)
	v.LastSerial(&m.serial)
	v.Flags(m.lapsed, m.met, m.refused != nil, m.unfit.err != nil)
	if m.refused != nil {
		v.Texts(m.refused.Error())
	}

	v.Texts(m.snap.UID, m.known, m.unfit.uid)
	v.TableVersion(&m.snap.Version)
	v.Table(&m.snap.Table)
	visitSet(v, m.gone)
	v.TableVersion(&m.floor)
	v.Order(&m.seenAt)
	v.Until(&m.outlives)
	v.Ints(int(m.phase), len(m.epochs))
	for _, uid := range sortedKeys(m.epochs) {
		e := m.epochs[uid]
		v.Texts(uid)
		v.Epoch(&e)
		m.epochs[uid] = e
	}
	v.Order(&m.toldAt)
	v.Epoch(&m.top)
	v.Order(&m.readAfter)
	v.TableVersion(&m.followed)
	v.Past(&m.gather, max(c.RetryPeriod/2, 3*time.Duration(c.Slots)*c.Coalesce)) // an owner has a slot at least
	visitSet(v, m.toExpel)
	visitSet(v, m.deleting)

	m.lease.visit(c, v)
	v.Flags(m.read.wanted, m.read.underWay)
	v.Until(&m.read.retryAt)
	m.watch.visit(c, v)
	m.trail.visit(c, v)
	m.recovery.visit(c, v)
	for i := range m.slots {
		m.slots[i].visit(v)
	}
	m.swap.visit(c, v)
	m.plan.visit(c, v)
	m.canaries.visit(c, v)
}

func (l *lease) visit(c *Config, v inspect.Visitor) {
	v.Texts(l.mine.UID)
	v.LeaseVersion(c.Self.ID, &l.mine.Version)
	v.Past(&l.start, c.RenewDeadline)
	v.Until(&l.next)
	v.Flags(l.underWay, l.failed, l.said, l.open)
	v.Order(&l.saidAt)
}

func (w *watch) visit(c *Config, v inspect.Visitor) {
	v.Serial(&w.serial)
	v.Flags(w.all, w.complete, w.capped, w.suspects)
	v.Ints(len(w.ids))
	v.Texts(w.ids...)
	v.TableVersion(&w.since)
	v.LeaseVersion(c.Self.ID, &w.version)
	v.Past(&w.echo, c.LeaseDuration/4+1)
	v.HeardNow(&w.heard)
	v.Ints(int(w.step), len(w.others))
	for _, id := range sortedKeys(w.others) {
		o := w.others[id]
		v.Texts(id, o.lease.UID, o.lease.TableUID)
		v.LeaseVersion(id, &o.lease.Version)
		v.Ints(int(o.lease.Epoch), o.lease.Format, o.renewals)
		v.Flags(o.lease.Open, o.missing, o.pending, o.shutting, o.older)
		v.Past(&o.seen, c.LeaseDuration/4+1)
		if !o.pending {
			v.Heard(&o.since, c.LeaseDuration*5/2)
		}
		if !o.missing && !o.lease.Open && !o.shutting {
			v.Heard(&o.shut, c.aftermath())
		}
	}
}

func (tr *trail) visit(c *Config, v inspect.Visitor) {
	v.TableVersion(&tr.known)
	v.TableVersion(&tr.begun)
	v.TableVersion(&tr.last)
	v.Past(&tr.doubted, c.RetryPeriod)
}

func (r *recovery) visit(c *Config, v inspect.Visitor) {
	v.Flags(r.on, r.pending, r.confirmed, r.early)
	v.LeaseVersion(c.Self.ID, &r.proof)
	if r.on && !r.pending {
		v.Heard(&r.since, c.LeaseDuration)
	}
	v.Past(&r.ready, c.RetryPeriod)
}

func (s *slotState) visit(v inspect.Visitor) {
	v.Ints(int(s.state), int(s.cause), len(s.gone))
	for _, g := range s.gone {
		v.Texts(g.Kind, g.Namespace, g.Name)
	}
	v.Epoch(&s.epoch)
	v.Epoch(&s.heldSince)
	v.Flags(s.shut)
	v.Epoch(&s.sentAt)
	v.Serial(&s.round)
	v.Until(&s.until)
}

func (s *swap) visit(c *Config, v inspect.Visitor) {
	v.Flags(s.underWay)
	v.Serial(&s.serial)
	v.TableVersion(&s.version)
	v.TableVersion(&s.refused)
	v.TableVersion(&s.unknown)
	v.Until(&s.retryAt)
	v.Past(&s.ready, c.Coalesce)
	v.Past(&s.transfer, c.Coalesce)
	v.Past(&s.settle, c.SettleDelay)
	v.Past(&s.abort, c.Coalesce)
	v.Past(&s.announce, c.Coalesce)
	v.Past(&s.label, c.Coalesce)
}

func (p *planning) visit(c *Config, v inspect.Visitor) {
	v.Ints(len(p.seen))
	for _, id := range sortedKeys(p.seen) {
		t := p.seen[id]
		v.Texts(id)
		v.Past(&t, max(c.JoinDelay, c.RolloutDelay)+c.JoinDelay)
		p.seen[id] = t
	}
	v.Until(&p.deleteAt)
	v.Past(&p.since, planners*c.RetryPeriod/8)
	v.Key(&p.key)
	v.Flags(p.target != nil)
	v.Ints(len(p.target))
	v.Texts(p.target...)
	v.TableVersion(&p.looked)
	v.Ints(p.lookedDead)
	v.Until(&p.lookAt)
	v.Past(&p.fresh, c.JoinDelay)
	v.Past(&p.duties, c.JoinDelay)
	v.Past(&p.orders, planners*c.RetryPeriod/8)
}

func (n *canaries) visit(c *Config, v inspect.Visitor) {
	v.Past(&n.lost, canaryLoss)
	v.Past(&n.alone, crashMemory)
	v.Past(&n.due, planners*c.RetryPeriod/8)
	v.Flags(n.asked, n.verdict.Bad, n.verdict.Good)
	v.Serial(&n.serial)
	v.Until(&n.next)
	v.Texts(n.of.Build, n.of.State.String(), n.verdict.Text, n.told)
	v.Ints(int(n.of.Since), int(n.of.Began), n.of.Step)
	v.Past(&n.unmet, c.LeaseDuration)
}

// visitSet shows the members of a set.
func visitSet(v inspect.Visitor, set map[string]bool) {
	ids := slices.DeleteFunc(sortedKeys(set), func(id string) bool { return !set[id] })
	v.Ints(len(ids))
	v.Texts(ids...)
}

func (m *Member) look() inspect.Status {
	r := &m.recovery
	return inspect.Status{
		Lapsed: m.lapsed,
		Fenced: slices.ContainsFunc(m.slots, func(s slotState) bool { return s.state == fenced }),
		Alone:  r.on && !r.pending && m.watch.heard-r.since >= m.cfg.LeaseDuration,
	}
}
