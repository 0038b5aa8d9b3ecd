package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// before and after are how long there is load before and after what a scenario does.
const before, after = 500 * time.Millisecond, time.Second

// Scenario is something that happens to a rota at work.
type Scenario struct {
	// Name identifies it, and What describes it in a sentence.
	Name, What string
	// Late is true if there may be late writes without a fence.
	Late bool
	// Fresh starts with new members, so that backoffs from the scenario before do not count: a watch of the table is
	// retried after up to 3 s, and client-go's informers wait up to 30 s before they list again.
	Fresh bool
	// Leases is how many leases a change may wait for its reconcile, in addition to FenceDelay and 4 s
	// (judge.CrashBound); 0 is 1. Planned means that slots are only handed over: a change may wait for one lease in all.
	Leases  int
	Planned bool
	// Crash means that nothing happens but the end of a process: a duty has a new owner within a lease, FenceDelay and
	// 0.5 s.
	Crash bool
	// Limit marks a scenario that shows what is not promised. It runs only if it is named.
	Limit bool
	// Delivery is the members'; the default is sharding.Filter.
	Delivery sharding.Mode
	// Do makes it happen. When it returns, the faults of all proxies end.
	Do func(context.Context, *Run) error
}

// Run is a scenario under way. Its methods are for the goroutine that calls Scenario.Do.
type Run struct {
	*Rig
	// Random is seeded.
	Random *rand.Rand
	// reachable is when members could reach the API server again; 0: some always could.
	reachable time.Duration
}

// Run prepares the rota, makes the scenario happen under load, waits until all is settled, and judges. An error means
// that the run could not be judged.
func (r *Rig) Run(ctx context.Context, s *Scenario, seed uint64) (*judge.Verdict, error) {
	if err := r.prepare(ctx, cmp.Or(s.Delivery, sharding.Filter), s.Fresh); err != nil {
		return nil, err
	}
	run := &Run{Rig: r, Random: rand.New(rand.NewPCG(seed, 2))}
	if _, err := r.take(); err != nil { // what came before is not for this run
		return nil, err
	}
	first := r.first
	begin, wall := journal.Now(), time.Now()
	if err := run.underLoad(ctx, s); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	bound := judge.CrashBound(r.Lease, 0, 0) + time.Duration(max(1, s.Leases)-1)*r.Lease
	settling := 3 * bound
	if s.Planned {
		bound = r.Lease
	}
	objects, err := r.settled(ctx, settling)
	if err == nil {
		err = r.dutiesDone(ctx, settling)
	}
	if err != nil {
		return nil, err
	}
	var unrest []string
	if err := r.Rest(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		unrest = []string{"no rest: " + err.Error()}
	}
	census, err := r.census(ctx)
	if err != nil {
		return nil, err
	}
	e, err := r.take()
	if err != nil {
		return nil, err
	}
	e.Objects, e.Begin, e.BeginWall, e.End = objects, begin, wall, journal.Now()
	e.Reachable, e.Bound, e.Before, e.After = run.reachable, bound, first, census
	e.Duties.Names, e.Duties.Bound = DutyNames, bound+dutyPeriod
	if s.Crash {
		e.Duties.Bound = judge.DutyBound(r.Lease, 0, 0) + dutyPeriod
	}
	records, err := r.fleet.Records()
	if err != nil {
		return nil, err
	}
	records.since(e)
	v := judge.Judge(e, func(pod string) string { return r.accounts.userOf(r.rota, pod) })
	v.Leaks = append(v.Leaks, unrest...)
	return &v, nil
}

// underLoad makes the scenario happen.
func (r *Run) underLoad(ctx context.Context, s *Scenario) error {
	loading, endLoad := context.WithCancel(ctx)
	defer endLoad()
	r.Load.Run(loading, ctx, r.Rate)
	err := await.Sleep(ctx, before)
	if err == nil {
		err = s.Do(ctx, r)
	}
	for _, m := range r.Live() {
		m.Proxy.Set(proxy.Faults{})
		m.Proxy.Use(0)
	}
	err = errors.Join(err, await.Sleep(ctx, after))
	endLoad()
	r.Load.Wait()
	return err
}

// since adds to the evidence what the records have of it.
func (rec *Records) since(e *judge.Evidence) {
	e.Ended, e.Pauses, e.Known = rec.Ended, rec.Pauses, map[string]bool{}
	over := func(one journal.Reconcile) bool {
		at, ended := e.Ended[one.Pod]
		return one.End == 0 && ended && at < e.Begin || one.End != 0 && one.End < e.Begin
	}
	for _, one := range slices.Concat(rec.Reconciles, rec.Duties) {
		e.Known[one.UID] = true
	}
	e.Reconciles, e.Duties.Runs = slices.DeleteFunc(rec.Reconciles, over), slices.DeleteFunc(rec.Duties, over)
}

// take returns what audit logs, followers, recorder and load have recorded since the last call.
func (r *Rig) take() (*judge.Evidence, error) {
	log := &judge.Log{}
	if err := r.ReadAudit(log, r.rota); err != nil {
		return nil, err
	}
	seen, err := r.followers[r.rota].History()
	if err != nil {
		return nil, err
	}
	byMember := func(v judge.Version) bool {
		_, member := r.accounts.podOf(v.User)
		return member
	}
	last := r.tables[r.rota]
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
		r.tables[r.rota] = slices.Clone(all.Tables[n-1:])
	}
	e := &judge.Evidence{
		World: judge.World{Pod: r.accounts.podOf, Slots: r.Slots, Key: r.key}, PodOf: PodOf, Audit: log, Seen: seen,
	}
	e.Updates, e.Deletions = r.Load.Take()
	e.Versions, e.Duties.Versions, e.Gaps = r.recorder.take()
	return e, nil
}

// settled waits until every object's status shows its generation, for limit at most, and returns all objects.
func (r *Rig) settled(ctx context.Context, limit time.Duration) (objects []judge.Final, err error) {
	_ = await.Until(ctx, 5*pollPeriod, limit, func() string { // in vain perhaps: the judge tells
		sites, listErr := r.Websites(ctx)
		if err = listErr; err != nil {
			return err.Error()
		}
		objects = objects[:0]
		behind := ""
		for i := range sites {
			o := &sites[i]
			objects = append(objects, judge.Final{
				Site:       judge.Site{NamespacedName: client.ObjectKeyFromObject(o), UID: string(o.UID)},
				Generation: o.Generation, Observed: o.Status.ObservedGeneration,
			})
			if o.Generation != o.Status.ObservedGeneration {
				behind = o.Name + " is not up to date"
			}
		}
		return behind
	})
	return objects, errors.Join(err, ctx.Err())
}

// dutiesDone waits until every duty is done, for limit at most.
func (r *Rig) dutiesDone(ctx context.Context, limit time.Duration) error {
	before := map[string]string{}
	_ = await.Until(ctx, pollPeriod, limit, func() string { // in vain perhaps: the judge tells
		for _, name := range DutyNames {
			_, version, err := r.dutyWriter(ctx, name)
			if err != nil {
				return err.Error()
			}
			before[name] = cmp.Or(before[name], version)
			if before[name] == version {
				return "duty " + name + " is not done"
			}
		}
		return ""
	})
	return ctx.Err()
}

// NextBuild has the replicas that start from now on be of another build.
func (r *Run) NextBuild() { r.build++ }

// Reachable records that members can reach the API server again, after none could.
func (r *Run) Reachable() { r.reachable = journal.Now() }

// Sleep waits for some leases.
func (r *Run) Sleep(ctx context.Context, leases float64) error {
	return await.Sleep(ctx, time.Duration(leases*float64(r.Lease)))
}

// Any returns a member, at random.
func (r *Run) Any() *Replica {
	live := r.Live()
	return live[r.Random.IntN(len(live))]
}

// Each sets the faults of all proxies.
func (r *Run) Each(f proxy.Faults) {
	for _, m := range r.Live() {
		m.Proxy.Set(f)
	}
}

// CutWatches ends the watches of all members.
func (r *Run) CutWatches() {
	for _, m := range r.Live() {
		m.Proxy.CutWatches()
	}
}

// Hot returns the Website that has half of the load, and the member that works on it.
func (r *Run) Hot(ctx context.Context) (judge.Site, *Replica, error) {
	hot := r.Load.Sites()[0]
	world := judge.World{Slots: r.Slots, Key: r.key}
	m, err := r.owner(ctx, func(*table.Table) (slot.Slot, bool) { return world.SlotOf(hot), true })
	return hot, m, err
}

// Duty returns one of the duties, at random, and the member that has it.
func (r *Run) Duty(ctx context.Context) (string, *Replica, error) {
	name := DutyNames[r.Random.IntN(len(DutyNames))]
	m, err := r.owner(ctx, func(t *table.Table) (slot.Slot, bool) { return t.DutySlot(name) })
	return name, m, err
}

// owner returns the member that has a slot.
func (r *Run) owner(ctx context.Context, of func(*table.Table) (slot.Slot, bool)) (*Replica, error) {
	t, err := r.Table(ctx)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, errors.New("there is no table")
	}
	s, ok := of(t)
	if !ok {
		return nil, errors.New("the table does not have the duty")
	}
	owner, _ := t.Member(t.At(s).Owner)
	for _, m := range r.Live() {
		if m.Pod == owner.Pod {
			return m, nil
		}
	}
	return nil, fmt.Errorf("slot %d belongs to %q, which does not run", s, owner.ID)
}

// MemberID returns the ID by which the table knows a Pod; "" if it does not.
func (r *Run) MemberID(ctx context.Context, pod string) (string, error) {
	t, err := r.Table(ctx)
	return idOf(t, pod), err
}

func idOf(t *table.Table, pod string) string {
	if t == nil {
		return ""
	}
	i := slices.IndexFunc(t.Members, func(m table.Member) bool { return m.Pod == pod })
	if i < 0 {
		return ""
	}
	return t.Members[i].ID
}

// Restart crashes a replica's process, and waits until its next process has joined.
func (r *Run) Restart(ctx context.Context, m *Replica) error {
	id, err := r.MemberID(ctx, m.Pod)
	if err != nil {
		return err
	}
	if err := m.Crash(); err != nil {
		return err
	}
	return errors.Join(r.Expelled(ctx, id), r.Joined(ctx, m.Pod))
}

// Leave has a replica leave, and waits until its process has ended.
func (r *Run) Leave(ctx context.Context, m *Replica) error {
	if err := m.Leave(); err != nil {
		return err
	}
	return r.until(ctx, m.Lingers)
}

// Join starts a replica, and waits until it has joined.
func (r *Run) Join(ctx context.Context) (*Replica, error) {
	m, err := r.Start(ctx)
	if err != nil {
		return nil, err
	}
	return m, r.Joined(ctx, m.Pod)
}

// Hold delays a write by a member, as a network might, until lose returns. It gets the member's ID.
func (r *Run) Hold(ctx context.Context, m *Replica, which func(*http.Request) bool, lose func(id string) error) error {
	id, err := r.MemberID(ctx, m.Pod)
	if err != nil {
		return err
	}
	held := m.Proxy.Hold(which)
	select {
	case <-held.Arrived():
	case <-time.After(stopLimit):
		return fmt.Errorf("%s has not written for %v", m.Pod, stopLimit)
	}
	if err := lose(id); err != nil {
		return err
	}
	_, err = held.Release(ctx) // the judge sees what became of it
	return err
}

// IsStatusWrite matches the writes of members to Websites.
func IsStatusWrite(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status")
}

// until waits until check returns "".
func (r *Run) until(ctx context.Context, check func() string) error {
	return await.Until(ctx, pollPeriod, restLimit, check)
}

// UntilTable waits until there is a table for which check returns "".
func (r *Run) UntilTable(ctx context.Context, check func(*table.Table) string) error {
	return r.until(ctx, func() string {
		t, err := r.Table(ctx)
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

// Expelled waits until the table does not have a member any more.
func (r *Run) Expelled(ctx context.Context, id string) error {
	return r.UntilTable(ctx, func(t *table.Table) string {
		if _, there := t.Member(id); there {
			return id + " is still a member"
		}
		return ""
	})
}

// Joined waits until the table has a member of the Pod.
func (r *Run) Joined(ctx context.Context, pod string) error {
	return r.UntilTable(ctx, func(t *table.Table) string {
		if idOf(t, pod) == "" {
			return pod + " has not joined"
		}
		return ""
	})
}

// TakenOver waits until another Pod has written to a Website.
func (r *Run) TakenOver(ctx context.Context, name types.NamespacedName, pod string) error {
	return r.written(ctx, name.String(), pod, func() (string, error) { return r.writer(ctx, name) })
}

// DutyTaken waits until another Pod has written for a duty.
func (r *Run) DutyTaken(ctx context.Context, name, pod string) error {
	return r.written(ctx, "duty "+name, pod, func() (string, error) {
		writer, _, err := r.dutyWriter(ctx, name)
		return writer, err
	})
}

func (r *Run) written(ctx context.Context, what, pod string, writer func() (string, error)) error {
	return r.until(ctx, func() string {
		by, err := writer()
		switch {
		case err != nil:
			return err.Error()
		case by == pod:
			return fmt.Sprintf("only %s has written to %s", pod, what)
		}
		return ""
	})
}
