package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// fault is something that happens to a rota at work.
type fault struct {
	name, what string
	// late says that it may cause late writes where there is no fence.
	late bool
	// fresh starts the run with new members, so that backoffs from the fault before do not count: a watch of the table
	// is retried after up to 3 s, and client-go's informers wait up to 30 s before they list again.
	fresh bool
	// leases is how many leases a change may wait for its reconcile, in addition to FenceDelay and 4 s
	// (check.CrashBound). Default 1. planned says that slots are only handed over: a change may wait for one lease in
	// all, which is less than a crash takes.
	leases  int
	planned bool
	// crash says that nothing happens but the end of a process: a duty has a new owner within a lease, FenceDelay and
	// 0.5 s.
	crash bool
	// limit marks faults that show what is not promised. They run only if they are named.
	limit bool
	// delivery is the members'; default sharding.Filter.
	delivery sharding.Mode
	do       func(context.Context, *run) error
}

// faults are all faults, in the order of a round. Those with one delivery are together, since a change of it takes new
// members.
var faults = slices.Concat(
	crashes, pauses, networks, answers, heldWrites, dutyFaults, controlPlanes, tableFaults, plannedMoves, labelFaults,
)

// Names returns the names of the default faults of a campaign, and of the others.
func Names() (usual, others []string) {
	for i := range faults {
		if faults[i].limit {
			others = append(others, faults[i].name)
		} else {
			usual = append(usual, faults[i].name)
		}
	}
	return usual, others
}

// Describe returns what a fault is.
func Describe(name string) string {
	if f := find(name); f != nil {
		return f.what
	}
	return ""
}

func find(name string) *fault {
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return &faults[i]
}

var crashes = []fault{
	{name: "kill", crash: true, what: "a member is killed (SIGKILL), and its Pod is gone",
		do: func(_ context.Context, r *run) error { return r.any().lose() }},
	{name: "restart", crash: true, what: "a member's container is killed (SIGKILL) and starts again",
		do: func(ctx context.Context, r *run) error {
			m := r.any()
			return r.restart(ctx, m)
		}},
	// After the second expel it gets no slots (R9), so a change waits for two at most.
	{name: "crash-loop", leases: 2, what: "a member's container is killed four times, as soon as it has joined again",
		do: func(ctx context.Context, r *run) error {
			m := r.any()
			for range 4 {
				if err := r.restart(ctx, m); err != nil {
					return err
				}
			}
			return m.lose()
		}},
}

// restart kills a container and waits until its next process has joined.
func (r *run) restart(ctx context.Context, m *member) error {
	t, err := r.table(ctx)
	if err != nil {
		return err
	}
	if err := m.kill(); err != nil {
		return err
	}
	return errors.Join(r.expelled(ctx, idOf(t, m.pod)), r.joined(ctx, m.pod))
}

var pauses = func() (out []fault) {
	for _, leases := range []float64{0.5, 0.99, 1.01, 3} {
		for _, place := range []string{atWrite, atReconcile} {
			name, where := fmt.Sprintf("pause-%v", leases), "in the middle of sending a write, after all checks"
			if place == atReconcile {
				name, where = name+"-reconcile", "in the middle of a reconcile"
			}
			out = append(out, fault{name: name, late: true,
				what: fmt.Sprintf("a member stops (SIGSTOP) %s, and goes on after %v leases", where, leases),
				do: func(ctx context.Context, r *run) error {
					m, err := r.victim(ctx)
					if err != nil {
						return err
					}
					return m.pause(ctx, place, r.load.hot().Name, time.Duration(leases*float64(r.o.Lease)))
				}})
		}
	}
	return out
}()

// one puts a fault between the member of the hot Website and the API server, for some leases.
func one(leases float64, f proxy.Faults) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		m, err := r.victim(ctx)
		if err != nil {
			return err
		}
		m.proxy.Set(f)
		err = r.leases(ctx, leases)
		m.proxy.Set(proxy.Faults{})
		return err
	}
}

// everybody puts a fault between all members and the API server, for some leases. unusable says that the API server
// counts as reachable only afterwards.
func everybody(leases float64, f proxy.Faults, unusable bool) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		r.each(f)
		err := r.leases(ctx, leases)
		r.each(proxy.Faults{})
		if unusable {
			r.over()
		}
		return err
	}
}

func (r *run) leases(ctx context.Context, n float64) error {
	return await.Sleep(ctx, time.Duration(n*float64(r.o.Lease)))
}

var networks = []fault{
	{name: "partition", late: true,
		what: "nothing gets through between a member and the API server, in neither direction, for 2.5 leases",
		do:   one(2.5, proxy.Faults{SwallowRequests: true, SwallowResponses: true})},
	{name: "partition-requests", late: true, what: "a member's requests do not arrive for 2.5 leases",
		do: one(2.5, proxy.Faults{SwallowRequests: true})},
	{name: "partition-responses", late: true,
		what: "a member's requests are carried out, but nothing comes back, for 2.5 leases",
		do:   one(2.5, proxy.Faults{SwallowResponses: true})},
	{name: "partition-blink", late: true, what: "nothing gets through between a member and the API server for 0.5 leases",
		do: one(0.5, proxy.Faults{SwallowRequests: true, SwallowResponses: true})},
	{name: "partition-all", late: true, what: "nothing gets through between all members and the API server for 1.5 leases",
		do: everybody(1.5, proxy.Faults{SwallowRequests: true, SwallowResponses: true}, true)},
	{name: "slow-0.1", what: "each request of every member takes 0.1 s longer, for 2 leases",
		do: everybody(2, proxy.Faults{Delay: 100 * time.Millisecond}, false)},
	{name: "slow-1", what: "each request of every member takes 1 s longer, for 2 leases",
		do: everybody(2, proxy.Faults{Delay: time.Second}, true)},
	{name: "throttle", what: "a member receives at most 20 kB a second, for 2 leases",
		do: one(2, proxy.Faults{BytesPerSecond: 20_000})},
	{name: "cut-watches", what: "the watches of every member are cut every second, for 2 leases",
		do: everybody(2, proxy.Faults{CutWatches: time.Second}, false)},
	{name: "torn-watches", what: "the watches of every member break in the middle of an event every 0.3 s, for 2 leases",
		do: everybody(2, proxy.Faults{TearWatches: 300 * time.Millisecond}, false)},
}

var answers = []fault{
	{name: "error-429", what: "30 % of every member's requests are answered 429, for 2 leases",
		do: everybody(2, answering(http.StatusTooManyRequests), false)},
	{name: "error-500", what: "30 % of every member's requests are answered 500, for 2 leases",
		do: everybody(2, answering(http.StatusInternalServerError), false)},
	{name: "error-403",
		what: "30 % of every member's requests are answered 403, as by an API server that has not read its roles yet, " +
			"for 2 leases",
		do: everybody(2, answering(http.StatusForbidden), false)},
	{name: "error-410", fresh: true,
		what: "the watches of every member are cut every second, and half of the new ones are answered 410, for 2 leases",
		do: everybody(2, proxy.Faults{CutWatches: time.Second,
			Answers: []proxy.Answer{{Code: http.StatusGone, Share: 0.5}}}, false)},
}

func answering(code int) proxy.Faults {
	return proxy.Faults{Answers: []proxy.Answer{{Code: code, Share: 0.3}}}
}

// isStatus matches the writes of members to Websites.
func isStatus(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status")
}

// isWork matches the writes of members to Websites, and for duties.
func isWork(r *http.Request) bool {
	return isStatus(r) || slices.ContainsFunc(dutyNames, func(name string) bool { return isDutyWrite(name)(r) })
}

var heldWrites = []fault{
	{name: "held-write", late: true,
		what: "the network keeps a write of a member that it cuts off, and delivers it when another one works on the object",
		do: func(ctx context.Context, r *run) error {
			return r.holdHot(ctx, func(m *member, id string) error {
				m.proxy.Set(proxy.Faults{SwallowRequests: true, SwallowResponses: true})
				return r.expelled(ctx, id)
			})
		}},
	{name: "held-write-leave", late: true,
		what: "the network keeps a write of a member that leaves, and delivers it when it has left",
		do: func(ctx context.Context, r *run) error {
			return r.holdHot(ctx, func(m *member, id string) error { return errors.Join(m.leave(), r.expelled(ctx, id)) })
		}},
	{name: "held-write-join", late: true, limit: true,
		what: "the network keeps a write of a member until a new member has taken over the object; the writer stays a " +
			"member, so no fence refuses it",
		do: func(ctx context.Context, r *run) error {
			return r.holdHot(ctx, func(m *member, _ string) error { return r.handAway(ctx, m) })
		}},
}

// holdHot delays a write by the member that works on the hot Website until that member has lost the object and another
// one has written to it.
func (r *run) holdHot(ctx context.Context, lose func(m *member, id string) error) error {
	m, err := r.victim(ctx)
	if err != nil {
		return err
	}
	hot := r.load.hot()
	return r.hold(ctx, m, func(req *http.Request) bool {
		return isStatus(req) && strings.Contains(req.URL.Path, "/"+hot.Name+"/")
	}, func(id string) error { return errors.Join(lose(m, id), r.takenOver(ctx, hot.NamespacedName, m.pod)) })
}

// hold delays a write by a member until lose, which gets the member's ID, returns.
func (r *run) hold(ctx context.Context, m *member, which func(*http.Request) bool, lose func(id string) error) error {
	t, err := r.table(ctx)
	if err != nil {
		return err
	}
	held := m.proxy.Hold(which)
	select {
	case <-held.Arrived():
	case <-time.After(stopLimit):
		return fmt.Errorf("%s has not written for %v", m.pod, stopLimit)
	}
	if err := lose(idOf(t, m.pod)); err != nil {
		return err
	}
	_, err = held.Release(ctx) // the oracle sees what became of it
	return err
}

// handAway starts members until another one owns the hot Website.
func (r *run) handAway(ctx context.Context, m *member) error {
	for range 4 {
		fresh, err := r.start(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(r.joined(ctx, fresh.pod), r.rest(ctx)); err != nil {
			return err
		}
		if owner, err := r.victim(ctx); err != nil || owner != m {
			return err
		}
	}
	return errors.New("the hot Website stays where it is")
}

var plannedMoves = []fault{
	{name: "join-leave", planned: true, what: "a fourth member joins and leaves again, while watches are cut every second",
		do: func(ctx context.Context, r *run) error {
			r.each(proxy.Faults{CutWatches: time.Second})
			m, err := r.start(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(r.joined(ctx, m.pod), r.rest(ctx), m.leave()); err != nil {
				return err
			}
			return await.Until(ctx, pollPeriod, restLimit, m.now().Lingers)
		}},
	{name: "rollout", planned: true, what: "all members are replaced one by one by those of another build", do: rollout},
	{name: "rollout-slow", planned: true,
		what: "a rollout, in which each write of those that leave to a Website, or for a duty, takes 0.5 s, longer than a " +
			"move",
		do: func(ctx context.Context, r *run) error {
			r.each(proxy.Faults{Delay: 500 * time.Millisecond, Delayed: isWork})
			return rollout(ctx, r)
		}},
}

func rollout(ctx context.Context, r *run) error {
	r.build++
	for _, old := range r.live() {
		fresh, err := r.start(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(r.joined(ctx, fresh.pod), old.leave()); err != nil {
			return err
		}
		if err := await.Until(ctx, pollPeriod, restLimit, old.now().Lingers); err != nil {
			return err
		}
	}
	return nil
}
