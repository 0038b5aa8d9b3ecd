package controllers

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
)

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
