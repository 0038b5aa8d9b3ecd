package controllers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

func TestFewBrokenObjectsAreNoFailure(t *testing.T) {
	one := func(int) types.NamespacedName { return types.NamespacedName{Name: "broken"} }
	many := func(n int) types.NamespacedName { return types.NamespacedName{Name: fmt.Sprint(n)} }
	half, all := slot.SetOf(slot.Range{First: 0, Last: 0}), slot.SetOf(slot.Range{First: 0, Last: 1})
	for _, test := range []struct {
		name    string
		worked  bool // before
		objects int
		key     func(int) types.NamespacedName
		lost    slot.Set
		after   time.Duration
		want    bool
	}{
		{"one of many", false, 1000, one, slot.Set{}, time.Hour, false},
		{"the only one", false, 1, one, slot.Set{}, time.Hour, true},
		{"a deleted one, of none", false, 0, one, slot.Set{}, time.Hour, true},
		{"different ones of many", false, 1000, many, slot.Set{}, work.FailingAfter, true},
		{"not for long", false, 1000, many, slot.Set{}, work.FailingAfter - 1, false},
		{"few of a quiet operator", true, 101, many, slot.Set{}, work.FailingAfter, false},
		{"half of what there is", true, 100, many, slot.Set{}, work.FailingAfter, true},
		{"half of them went to another member", true, 60, many, half, work.FailingAfter, false},
		{"all went to another member", true, 0, many, all, work.FailingAfter, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys := work.NewKeys[types.NamespacedName, struct{}]()
			if test.worked {
				keys.Succeed(test.key(0))
			}
			for n := range 50 {
				keys.Fail(test.key(n), work.Failure{Slot: slot.Slot(n % 2), At: time.Second, Err: errors.New("boom")})
			}
			keys.Forget(test.lost)
			f, got := allFail(keys.Sum(), time.Second+test.after, func() int { return test.objects })
			if got != test.want || got && f.Times != 50 {
				t.Errorf("failing: %t, %+v; want %t, of 50 reconciles", got, f, test.want)
			}
		})
	}
}

// TestSteps: what is counted is of one step of a canary, with the handovers that lead to it, and of none without one.
func TestSteps(t *testing.T) {
	var of step
	key := types.NamespacedName{Name: "x"}
	now := table.Canary{}
	for _, test := range []struct {
		what   string
		change func()
		runs   bool
		want   int64 // tries
	}{
		{"no canary", func() {}, false, 0},
		{"its slots move", func() { now = table.Canary{Build: "v2", Steps: []int{5, 20}} }, true, 1},
		{"the step has begun", func() { now.Began = 7 }, true, 2},
		{"another step", func() { now.Step, now.Began = 1, 0 }, true, 1},
		{"it goes back", func() { now.State = table.CanaryBack }, false, 0},
		{"another canary of the build", func() { now = table.Canary{Build: "v2", Since: 9, Steps: []int{5, 20}, Step: 1} }, true, 1},
	} {
		test.change()
		if at := of.at(&now); (at != nil) != test.runs {
			t.Fatalf("%s: runs %t", test.what, at != nil)
		} else if at != nil {
			at.Try(key, false, time.Second, 0, false)
		}
		if of.Tries != test.want {
			t.Errorf("%s: %d tries, want %d", test.what, of.Tries, test.want)
		}
	}
}
