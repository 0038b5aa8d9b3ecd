package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/oracle"
	"github.com/rota-dev/rota/test/rig/proxy"
)

const (
	// before and after are how long there is load before and after a fault.
	before, after = 500 * time.Millisecond, time.Second
)

// run is one fault on a fleet.
type run struct {
	*fleet
	random *rand.Rand
	// reachable is when members could reach the API server again; 0: some always could.
	reachable time.Duration
}

// do makes the fault happen under load, and judges the run. An error means that the run could not be judged.
func (s *fleet) do(ctx context.Context, f *fault, seed uint64) (*oracle.Verdict, error) {
	r := &run{fleet: s, random: rand.New(rand.NewPCG(seed, 2))}
	if _, _, err := s.take(); err != nil { // what came before is not for this run
		return nil, err
	}
	first := s.first
	begin, wall := journal.Now(), time.Now()
	loading, endLoad := context.WithCancel(ctx)
	defer endLoad()
	s.load.run(loading, ctx, s.o.Rate)
	err := await.Sleep(ctx, before)
	if err == nil {
		err = f.do(ctx, r)
	}
	for _, m := range s.live() {
		m.proxy.Set(proxy.Faults{})
		m.proxy.Use(0)
	}
	err = errors.Join(err, await.Sleep(ctx, after))
	endLoad()
	s.load.Wait()
	if err != nil {
		return nil, fmt.Errorf("fault %s: %w", f.name, err)
	}
	bound := judge.CrashBound(s.o.Lease, 0, 0) + time.Duration(max(1, f.leases)-1)*s.o.Lease
	settling := 3 * bound
	if f.planned {
		bound = s.o.Lease
	}
	objects, err := s.settled(ctx, settling)
	if err == nil {
		err = s.done(ctx, settling)
	}
	if err != nil {
		return nil, err
	}
	var unrest []string
	if err := s.rest(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		unrest = []string{"no rest: " + err.Error()}
	}
	census, err := s.census(ctx)
	if err != nil {
		return nil, err
	}
	e, user, err := s.take()
	if err != nil {
		return nil, err
	}
	e.Objects, e.Begin, e.BeginWall, e.End = objects, begin, wall, journal.Now()
	e.Reachable, e.Bound, e.Before, e.After = r.reachable, bound, first, census
	e.Duties.Names, e.Duties.Bound = dutyNames, bound+dutyPeriod
	if f.crash {
		e.Duties.Bound = judge.DutyBound(s.o.Lease, 0, 0) + dutyPeriod
	}
	if err := s.journals(e); err != nil {
		return nil, err
	}
	v := oracle.Judge(e, user)
	v.Leaks = append(v.Leaks, unrest...)
	return &v, nil
}

// take returns what audit logs, followers, recorder and load have recorded since the last call.
func (s *fleet) take() (*oracle.Evidence, func(string) string, error) {
	log := &judge.Log{}
	if err := s.cluster.ReadAudit(log, s.rota); err != nil {
		return nil, nil, err
	}
	seen, err := s.followers[s.rota].History()
	if err != nil {
		return nil, nil, err
	}
	last := s.tables[s.rota]
	seen = slices.DeleteFunc(slices.Clone(seen), func(v judge.Version) bool {
		return len(last) > 0 && resourceversion.Compare(v.Version, last[0].Version) <= 0 ||
			slices.ContainsFunc(log.Tables, func(l judge.Version) bool { return l.Version == v.Version && !byMember(l) })
	})
	log.Tables = slices.DeleteFunc(log.Tables, func(v judge.Version) bool { return !byMember(v) })
	log.Tables = slices.Concat(last, log.Tables)
	log.Sort()
	all := judge.Log{Tables: slices.Clone(log.Tables)}
	all.Saw(seen)
	if n := len(all.Tables); n > 0 {
		s.tables[s.rota] = slices.Clone(all.Tables[n-1:])
	}
	e := &oracle.Evidence{
		World: judge.World{Pod: podOf, Slots: s.o.Slots, Key: s.key}, PodOf: podOfProcess, Audit: log, Seen: seen,
	}
	e.Updates, e.Deletions = s.load.Take()
	e.Versions, e.Duties.Versions, e.Gaps = s.recorder.take()
	return e, func(pod string) string { return userOf(s.rota, pod) }, nil
}

// byMember reports whether a member wrote a version of the table.
func byMember(v judge.Version) bool {
	_, member := podOf(v.User)
	return member
}

// journals adds what the journals of all processes hold.
func (s *fleet) journals(e *oracle.Evidence) error {
	e.Ended, e.Known = map[string]time.Duration{}, map[string]bool{}
	for _, m := range s.members {
		for _, l := range m.all() {
			at, over := l.Ended()
			if over {
				e.Ended[l.name] = at
			}
			list, err := l.journal.Read()
			if err != nil {
				return err
			}
			for _, r := range list {
				e.Known[r.UID] = true
				switch {
				case r.End == 0 && over && at < e.Begin || r.End != 0 && r.End < e.Begin:
				case r.Key.Namespace == dutyNamespace:
					e.Duties.Runs = append(e.Duties.Runs, r)
				default:
					e.Reconciles = append(e.Reconciles, r)
				}
			}
		}
		e.Pauses = append(e.Pauses, m.stopped()...)
	}
	return nil
}

// victim returns the member that works on the hot Website, which writes all the time.
func (r *run) victim(ctx context.Context) (*member, error) {
	t, err := r.table(ctx)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, errors.New("there is no table")
	}
	world := judge.World{Slots: r.o.Slots, Key: r.key}
	m, err := r.owner(t, world.SlotOf(r.load.hot()))
	if err != nil {
		err = fmt.Errorf("the hot Website: %w", err)
	}
	return m, err
}

// owner returns the member that has a slot.
func (r *run) owner(t *table.Table, s slot.Slot) (*member, error) {
	owner, _ := t.Member(t.At(s).Owner)
	for _, m := range r.live() {
		if m.pod == owner.Pod {
			return m, nil
		}
	}
	return nil, fmt.Errorf("it belongs to %q, which does not run", owner.ID)
}

// any returns a member, at random.
func (r *run) any() *member {
	live := r.live()
	return live[r.random.IntN(len(live))]
}

// each sets the faults of all proxies.
func (r *run) each(f proxy.Faults) {
	for _, m := range r.live() {
		m.proxy.Set(f)
	}
}

// idOf returns the ID by which a table knows a Pod; "" where it does not.
func idOf(t *table.Table, pod string) string {
	if t == nil {
		return ""
	}
	for _, m := range t.Members {
		if m.Pod == pod {
			return m.ID
		}
	}
	return ""
}

// until waits until there is a table for which check returns "".
func (r *run) until(ctx context.Context, check func(*table.Table) string) error {
	return await.Until(ctx, pollPeriod, restLimit, func() string {
		t, err := r.table(ctx)
		switch {
		case err != nil:
			return err.Error()
		case t == nil:
			return "there is no table"
		default:
			return check(t)
		}
	})
}

// expelled waits until the table does not have a member any more.
func (r *run) expelled(ctx context.Context, id string) error {
	return r.until(ctx, func(t *table.Table) string {
		if _, there := t.Member(id); there {
			return id + " is still a member"
		}
		return ""
	})
}

// joined waits until the table has a member of the Pod.
func (r *run) joined(ctx context.Context, pod string) error {
	return r.until(ctx, func(t *table.Table) string {
		if idOf(t, pod) == "" {
			return pod + " has not joined"
		}
		return ""
	})
}

// takenOver waits until another Pod has written to a Website.
func (r *run) takenOver(ctx context.Context, name types.NamespacedName, pod string) error {
	return await.Until(ctx, pollPeriod, restLimit, func() string {
		writer, err := r.cluster.writer(ctx, name)
		if err != nil {
			return err.Error()
		}
		if writer == pod {
			return fmt.Sprintf("nobody but %s has written to %s", pod, name)
		}
		return ""
	})
}
