package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// faults are all faults, in the order of a round. Those with one delivery are together, since a change of it takes new
// members.
var faults = slices.Concat(
	crashes, pauses, networks, answers, heldWrites, dutyFaults, controlPlanes, tableFaults, plannedMoves, labelFaults,
)

// Names returns the names of the default faults of a campaign, and of the others.
func Names() (usual, others []string) {
	for i := range faults {
		if faults[i].Limit {
			others = append(others, faults[i].Name)
		} else {
			usual = append(usual, faults[i].Name)
		}
	}
	return usual, others
}

// Describe returns what a fault is.
func Describe(name string) string {
	if f := find(name); f != nil {
		return f.What
	}
	return ""
}

func find(name string) *rig.Scenario {
	i := slices.IndexFunc(faults, func(f rig.Scenario) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &faults[i]
}

var crashes = []rig.Scenario{
	{Name: "kill", Crash: true, What: "a member is killed (SIGKILL), and its Pod is gone",
		Do: func(_ context.Context, r *rig.Run) error { return r.Any().Kill() }},
	{Name: "restart", Crash: true, What: "a member's container is killed (SIGKILL) and starts again",
		Do: func(ctx context.Context, r *rig.Run) error { return r.Restart(ctx, r.Any()) }},
	// After the second expel it gets no slots (R9), so a change waits for two at most.
	{Name: "crash-loop", Leases: 2, What: "a member's container is killed four times, as soon as it has joined again",
		Do: func(ctx context.Context, r *rig.Run) error {
			m := r.Any()
			for range 4 {
				if err := r.Restart(ctx, m); err != nil {
					return err
				}
			}
			return m.Kill()
		}},
}

var pauses = func() (out []rig.Scenario) {
	for _, leases := range []float64{0.5, 0.99, 1.01, 3} {
		for _, place := range []string{rig.AtWrite, rig.AtReconcile} {
			name, where := fmt.Sprintf("pause-%v", leases), "in the middle of sending a write, after all checks"
			if place == rig.AtReconcile {
				name, where = name+"-reconcile", "in the middle of a reconcile"
			}
			out = append(out, rig.Scenario{Name: name, Late: true,
				What: fmt.Sprintf("a member stops (SIGSTOP) %s, and goes on after %v leases", where, leases),
				Do: func(ctx context.Context, r *rig.Run) error {
					hot, m, err := r.Hot(ctx)
					if err != nil {
						return err
					}
					return m.PauseFor(ctx, place, hot.Name, time.Duration(leases*float64(r.Lease)))
				}})
		}
	}
	return out
}()

// one puts a fault between the member of the hot Website and the API server, for some leases.
func one(leases float64, f proxy.Faults) func(context.Context, *rig.Run) error {
	return func(ctx context.Context, r *rig.Run) error {
		_, m, err := r.Hot(ctx)
		if err != nil {
			return err
		}
		m.Proxy.Set(f)
		err = r.Sleep(ctx, leases)
		m.Proxy.Set(proxy.Faults{})
		return err
	}
}

// betweenAll injects a fault between all members and the API server, for some leases. unusable says that the API server
// counts as reachable only afterwards.
func betweenAll(leases float64, f proxy.Faults, unusable bool) func(context.Context, *rig.Run) error {
	return func(ctx context.Context, r *rig.Run) error {
		r.Each(f)
		err := r.Sleep(ctx, leases)
		r.Each(proxy.Faults{})
		if unusable {
			r.Reachable()
		}
		return err
	}
}

var networks = []rig.Scenario{
	{Name: "partition", Late: true,
		What: "nothing gets through between a member and the API server, in neither direction, for 2.5 leases",
		Do:   one(2.5, proxy.Faults{SwallowRequests: true, SwallowResponses: true})},
	{Name: "partition-requests", Late: true, What: "a member's requests do not arrive for 2.5 leases",
		Do: one(2.5, proxy.Faults{SwallowRequests: true})},
	{Name: "partition-responses", Late: true,
		What: "a member's requests are carried out, but nothing comes back, for 2.5 leases",
		Do:   one(2.5, proxy.Faults{SwallowResponses: true})},
	{Name: "partition-blink", Late: true, What: "nothing gets through between a member and the API server for 0.5 leases",
		Do: one(0.5, proxy.Faults{SwallowRequests: true, SwallowResponses: true})},
	{Name: "partition-all", Late: true, What: "nothing gets through between all members and the API server for 1.5 leases",
		Do: betweenAll(1.5, proxy.Faults{SwallowRequests: true, SwallowResponses: true}, true)},
	{Name: "slow-0.1", What: "each request of every member takes 0.1 s longer, for 2 leases",
		Do: betweenAll(2, proxy.Faults{Delay: 100 * time.Millisecond}, false)},
	{Name: "slow-1", What: "each request of every member takes 1 s longer, for 2 leases",
		Do: betweenAll(2, proxy.Faults{Delay: time.Second}, true)},
	{Name: "throttle", What: "a member receives at most 20 kB a second, for 2 leases",
		Do: one(2, proxy.Faults{BytesPerSecond: 20_000})},
	{Name: "cut-watches", What: "the watches of every member are cut every second, for 2 leases",
		Do: betweenAll(2, proxy.Faults{CutWatches: time.Second}, false)},
	{Name: "torn-watches", What: "the watches of every member break in the middle of an event every 0.3 s, for 2 leases",
		Do: betweenAll(2, proxy.Faults{TearWatches: 300 * time.Millisecond}, false)},
}

var answers = []rig.Scenario{
	{Name: "error-429", What: "30 % of every member's requests are answered 429, for 2 leases",
		Do: betweenAll(2, answering(http.StatusTooManyRequests), false)},
	{Name: "error-500", What: "30 % of every member's requests are answered 500, for 2 leases",
		Do: betweenAll(2, answering(http.StatusInternalServerError), false)},
	{Name: "error-403",
		What: "30 % of every member's requests are answered 403, as by an API server that has not read its roles yet, " +
			"for 2 leases",
		Do: betweenAll(2, answering(http.StatusForbidden), false)},
	{Name: "error-410", Fresh: true,
		What: "the watches of every member are cut every second, and half of the new ones are answered 410, for 2 leases",
		Do: betweenAll(2, proxy.Faults{CutWatches: time.Second,
			Answers: []proxy.Answer{{Code: http.StatusGone, Share: 0.5}}}, false)},
}

func answering(code int) proxy.Faults {
	return proxy.Faults{Answers: []proxy.Answer{{Code: code, Share: 0.3}}}
}

// isWork matches the writes of members to Websites, and for duties.
func isWork(r *http.Request) bool {
	return rig.IsStatusWrite(r) ||
		slices.ContainsFunc(rig.DutyNames, func(name string) bool { return rig.IsDutyWrite(name)(r) })
}

var heldWrites = []rig.Scenario{
	{Name: "held-write", Late: true,
		What: "the network keeps a write of a member that it cuts off, and delivers it when another one works on the object",
		Do: func(ctx context.Context, r *rig.Run) error {
			return holdHot(ctx, r, func(m *rig.Replica, id string) error {
				m.Proxy.Set(proxy.Faults{SwallowRequests: true, SwallowResponses: true})
				return r.Expelled(ctx, id)
			})
		}},
	{Name: "held-write-leave", Late: true,
		What: "the network keeps a write of a member that leaves, and delivers it when it has left",
		Do: func(ctx context.Context, r *rig.Run) error {
			return holdHot(ctx, r, func(m *rig.Replica, id string) error { return errors.Join(m.Leave(), r.Expelled(ctx, id)) })
		}},
	{Name: "held-write-join", Late: true, Limit: true,
		What: "the network keeps a write of a member until a new member has taken over the object; the writer stays a " +
			"member, so no fence refuses it",
		Do: func(ctx context.Context, r *rig.Run) error {
			return holdHot(ctx, r, func(m *rig.Replica, _ string) error { return handAway(ctx, r, m) })
		}},
}

// holdHot delays a write by the member that works on the hot Website until that member has lost the object and another
// one has written to it.
func holdHot(ctx context.Context, r *rig.Run, lose func(m *rig.Replica, id string) error) error {
	hot, m, err := r.Hot(ctx)
	if err != nil {
		return err
	}
	return r.Hold(ctx, m, func(req *http.Request) bool {
		return rig.IsStatusWrite(req) && strings.Contains(req.URL.Path, "/"+hot.Name+"/")
	}, func(id string) error { return errors.Join(lose(m, id), r.TakenOver(ctx, hot.NamespacedName, m.Pod)) })
}

// handAway starts members until another one owns the hot Website.
func handAway(ctx context.Context, r *rig.Run, m *rig.Replica) error {
	for range 4 {
		if _, err := r.Join(ctx); err != nil {
			return err
		}
		if err := r.Rest(ctx); err != nil {
			return err
		}
		if _, owner, err := r.Hot(ctx); err != nil || owner != m {
			return err
		}
	}
	return errors.New("the hot Website stays where it is")
}

var plannedMoves = []rig.Scenario{
	{Name: "join-leave", Planned: true, What: "a fourth member joins and leaves again, while watches are cut every second",
		Do: func(ctx context.Context, r *rig.Run) error {
			r.Each(proxy.Faults{CutWatches: time.Second})
			m, err := r.Join(ctx)
			if err != nil {
				return err
			}
			return errors.Join(r.Rest(ctx), r.Leave(ctx, m))
		}},
	{Name: "rollout", Planned: true, What: "all members are replaced one by one by those of another build", Do: rollout},
	{Name: "rollout-slow", Planned: true,
		What: "a rollout, in which each write of those that leave to a Website, or for a duty, takes 0.5 s, longer than a " +
			"move",
		Do: func(ctx context.Context, r *rig.Run) error {
			r.Each(proxy.Faults{Delay: 500 * time.Millisecond, Delayed: isWork})
			return rollout(ctx, r)
		}},
}

func rollout(ctx context.Context, r *rig.Run) error {
	r.NextBuild()
	for _, old := range r.Live() {
		if _, err := r.Join(ctx); err != nil {
			return err
		}
		if err := r.Leave(ctx, old); err != nil {
			return err
		}
	}
	return nil
}
