package controllers

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

const (
	// worstKeys is how many objects of each sort a member reports, and hottestKeys how many that keep workers busy.
	worstKeys   = 5
	hottestKeys = 5
)

// unwell returns the controller's objects that belong in the member's health report.
func (c *Controller) unwell(now time.Time) []coverage.KeyHealth {
	failed := map[types.NamespacedName]work.Streak{}
	health := func(key types.NamespacedName, s slot.Slot) coverage.KeyHealth {
		of := failed[key]
		return coverage.KeyHealth{Controller: c.Name, Kind: c.Kind, Object: key, Slot: s, Failures: of.Failures,
			Panics: of.Panics, Since: of.Since, Last: of.Last, Error: of.Text}
	}
	var out []coverage.KeyHealth
	c.Work.With(func(k *keys) {
		k.Streaks(func(key types.NamespacedName, of work.Streak) { failed[key] = of })
		k.Flights(func(key types.NamespacedName, f work.Flight[work.Flying]) {
			if now.Sub(f.With.Since) >= coverage.HangingAfter {
				k := health(key, f.Slot)
				k.Running = f.With.Since
				out = append(out, k)
				delete(failed, key)
			}
		})
	})
	for key, of := range failed {
		switch {
		case of.Failures < coverage.FailingInRow:
		case c.isOver(key):
			c.Work.With(func(k *keys) { k.EndStreak(key) })
		default:
			out = append(out, health(key, of.Slot))
		}
	}
	return out
}

// isOver reports whether a failed key will not be tried again: its object is gone, and the key does not wait. Some
// controllers skip deletions.
func (c *Controller) isOver(key types.NamespacedName) (over bool) {
	if c.env.Share.Exists(c.Kind, key) {
		return false
	}
	c.Work.With(func(k *keys) { over = !k.Busy(key) })
	return over
}

// Health returns the state of this member's reconciles by object.
func (s *Set) Health() coverage.Health {
	now := s.env.Wall()
	var all []coverage.KeyHealth
	for _, c := range s.All() {
		all = append(all, c.unwell(now)...)
	}
	return worst(all)
}

// Hottest returns the objects that keep the most workers busy.
func (s *Set) Hottest() []coverage.HotObject {
	kinds := map[string]schema.GroupKind{}
	for _, c := range s.All() {
		kinds[c.Name] = c.Kind
	}
	var out []coverage.HotObject
	for _, h := range s.env.Gate.Hottest(hottestKeys) {
		if kind, sharded := kinds[h.Key.Queue]; sharded { // the rest are duties
			out = append(out, coverage.HotObject{
				Controller: h.Key.Queue, Kind: kind, Slot: h.Slot, Workers: h.Workers,
				Object: types.NamespacedName{Namespace: h.Key.Namespace, Name: h.Key.Name},
			})
		}
	}
	return out
}

// worst counts objects and picks the worst ones.
func worst(all []coverage.KeyHealth) (out coverage.Health) {
	slices.SortFunc(all, func(a, b coverage.KeyHealth) int { // keep the report stable
		return strings.Compare(a.Object.String()+" "+a.Controller, b.Object.String()+" "+b.Controller)
	})
	pick := func(is func(*coverage.KeyHealth) bool, since func(*coverage.KeyHealth) time.Time) (n int) {
		of := slices.DeleteFunc(slices.Clone(all), func(k coverage.KeyHealth) bool { return !is(&k) })
		slices.SortStableFunc(of, func(a, b coverage.KeyHealth) int { return since(&a).Compare(since(&b)) })
		for _, k := range of[:min(len(of), worstKeys)] {
			if !slices.Contains(out.Worst, k) {
				out.Worst = append(out.Worst, k)
			}
		}
		return len(of)
	}
	out.Hanging = pick((*coverage.KeyHealth).Hangs, func(k *coverage.KeyHealth) time.Time { return k.Running })
	out.Failing = pick((*coverage.KeyHealth).Fails, func(k *coverage.KeyHealth) time.Time { return k.Since })
	return out
}
