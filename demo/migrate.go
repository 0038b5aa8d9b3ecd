package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// electionName is the Lease of the stock replicas' leader election.
const electionName = "website-operator"

// Migration is a story in which replicas with leader election are replaced by members of a rota in a rolling update,
// and these by replicas with leader election again.
func Migration(ctx context.Context, s *Show) error {
	s.migrates, s.Fleet.Operator.Election = true, electionName
	s.Log("Starting %d replicas with leader election, and creating Websites.", replicas)
	for range replicas {
		if _, err := s.Fleet.Start(ctx, nil, func(o *rig.Operator) { o.Stock = true }); err != nil {
			return err
		}
	}
	if err := s.Fill(ctx); err != nil {
		return err
	}
	if err := s.Undisturbed(ctx, s.o.Baseline); err != nil {
		return err
	}
	for _, u := range []rig.Update{{Build: "there"}, {Build: "back", Stock: true}} {
		if err := s.Timed(u.Build, func(p *judge.Phase) error { return s.goOver(ctx, u, p) }); err != nil {
			return err
		}
	}
	return nil
}

// goOver replaces all replicas, and then waits until the new ones work.
func (s *Show) goOver(ctx context.Context, u rig.Update, p *judge.Phase) error {
	if err := s.Rollout(u)(ctx, p); err != nil {
		return err
	}
	err := s.Until(ctx, func() string {
		var lease coordinationv1.Lease
		err := s.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: electionName}, &lease)
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if err != nil || holder == "" || (holder == "rota:"+Namespace+"/"+Name) == u.Stock {
			return fmt.Sprintf("the Lease is held by %q (%v)", holder, err)
		}
		return ""
	})
	if err == nil && !u.Stock {
		err = s.Quiet(ctx)
	}
	if err != nil {
		return err
	}
	// Work goes on for a while on the new side, and the phase has all that the change brings.
	return await.Sleep(ctx, max(s.o.Baseline, time.Second))
}

// judgeSides counts the reconciles during which the other side reconciled something, be it another object, and measures
// the longest time in each phase in which no reconcile ran.
func (s *Show) judgeSides(r *Report, all []journal.Reconcile, ended map[string]time.Duration) {
	stock := map[string]bool{}
	for _, p := range s.Fleet.All() {
		stock[p.Pod] = p.Operator.Stock
	}
	slices.SortFunc(all, func(a, b journal.Reconcile) int { return cmp.Compare(a.Start, b.Start) })
	latest := map[bool]time.Duration{} // the latest end, of stock replicas and of members
	for _, one := range all {
		side := stock[one.Pod]
		if latest[!side] > one.Start {
			r.SidesOverlap++
		}
		latest[side] = max(latest[side], cmp.Or(one.End, ended[one.Pod]))
	}
	for _, p := range s.Phases {
		r.Phases = append(r.Phases, Phase{
			Name: p.Name, Seconds: (p.End - p.Start).Round(100 * time.Millisecond).Seconds(),
			GapSeconds: longestGap(all, p.Start, p.End).Round(time.Millisecond).Seconds(),
		})
	}
}

// longestGap is the longest time in which no reconcile ran, of reconciles in the order of their starts.
func longestGap(all []journal.Reconcile, from, to time.Duration) time.Duration {
	last, longest := from, time.Duration(0)
	for _, r := range all {
		if r.Start > to {
			break
		}
		longest = max(longest, r.Start-last)
		last = max(last, r.End, r.Start)
	}
	return longest
}
