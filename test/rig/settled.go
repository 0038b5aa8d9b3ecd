package rig

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/judge"
)

// settleLimit is how long after the load's end everything may take to be reconciled.
const settleLimit = 30 * time.Second

// Settled counts what there is when the load has ended.
type Settled struct {
	// Objects are the Websites, Reconciled those of them whose status and page show their latest generation.
	Objects    int `json:"objects"`
	Reconciled int `json:"reconciled"`
	// Children are the ConfigMaps, Deployments and Services that the Websites have to have, ChildrenRight those that are
	// in their desired state. ChildrenStray are those that belong to no Website.
	Children      int `json:"children"`
	ChildrenRight int `json:"children_right"`
	ChildrenStray int `json:"children_stray"`
}

// Claims are what has to be right in the end.
func (s Settled) Claims() []judge.Claim {
	return []judge.Claim{
		judge.ClaimOf(s.Reconciled == s.Objects, fmt.Sprintf("all %d Websites are up to date", s.Objects),
			fmt.Sprintf("%d of %d Websites are not up to date", s.Objects-s.Reconciled, s.Objects)),
		judge.ClaimOf(s.ChildrenRight == s.Children && s.ChildrenStray == 0,
			fmt.Sprintf("all their %d children are there, in their desired state", s.Children),
			fmt.Sprintf("%d of %d children are in their desired state, and %d belong to no Website",
				s.ChildrenRight, s.Children, s.ChildrenStray)),
	}
}

// Settle waits until the load's last changes are worked in, which may be in vain, and counts what is right.
func (s *Stage) Settle(ctx context.Context) (out Settled, err error) {
	_ = s.reconciled(ctx, settleLimit, 0) // the counts tell
	if err := s.Cluster.Sweep(ctx, s.Pages); err != nil {
		return out, fmt.Errorf("delete children of Websites that are gone: %w", err)
	}
	_ = await.Until(ctx, surveyPeriod, settleLimit, func() string {
		c, err := s.Cluster.SurveyChildren(ctx, s.Pages)
		if err != nil {
			return err.Error()
		}
		return c.Example
	})
	total, behind, example, err := s.Load.Survey(ctx)
	if err != nil {
		return out, err
	}
	if behind > 0 {
		s.Log("Not reconciled: %s and %d more", example, behind-1)
	}
	out.Objects, out.Reconciled = total, total-behind
	children, err := s.Cluster.SurveyChildren(ctx, s.Pages)
	out.Children, out.ChildrenRight, out.ChildrenStray = children.Total, children.Right, children.Stray
	if children.Example != "" {
		s.Log("Wrong about children: %s", children.Example)
	}
	if c := s.Load.Counts(); c.Failures > 0 {
		s.Log("%d requests of the load failed, the last one: %v", c.Failures, c.Err)
	}
	return out, err
}

// Moves returns records with the moves so far.
func (s *Stage) Moves() (*judge.Records, error) {
	history, err := s.Follower.History()
	return &judge.Records{World: s.World(), History: history, Moves: history.Moves()}, err
}

// Missed returns the deletions whose pages are left behind, and of these the ones that are excused: the slot was a
// killed member's.
func (s *Stage) Missed(
	ctx context.Context, deletions []judge.Deletion, rec *judge.Records,
) (missed, excused []judge.Deletion, err error) {
	err = until(ctx, settleLimit/3, func() string {
		all, err := s.Load.Leftovers(deletions)
		if err != nil {
			return err.Error()
		}
		missed, excused = nil, nil
		for _, d := range all {
			if s.Excused(d, rec) {
				excused = append(excused, d)
			} else {
				missed = append(missed, d)
			}
		}
		if len(missed) > 0 {
			return "a page is left behind"
		}
		return ""
	})
	if err != nil && len(missed) == 0 {
		return nil, nil, err
	}
	for _, d := range missed {
		in := s.World().SlotOf(d.Site)
		s.Log("Deletion missed: %s (slot %d), at %.1f s", d.Name, in, s.Since(d.Commit))
		for _, m := range rec.Moves {
			if m.Slot == in {
				s.Log("  slot %d: %s -> %s, from %.1f to %.1f s", in, m.From, m.To, s.Since(m.Planned), s.Since(m.Active))
			}
		}
	}
	return missed, excused, ctx.Err()
}

// Excused is true if a deletion is one that nobody may have seen.
func (s *Stage) Excused(d judge.Deletion, rec *judge.Records) bool {
	return rec.Excused(d, slices.Concat(s.Phases, s.Kills))
}
