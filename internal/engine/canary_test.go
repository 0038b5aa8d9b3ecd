package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/slot"
)

// canaryLab starts two members of build v1 and a canary of build v2 with half of the slots, whose reconciles take as
// long as takes says, and fail if it says so. It returns the canary's member.
func canaryLab(l *lab, takes func(build string, n int) (time.Duration, error)) *labMember {
	of := func(build string) func(*Options) {
		return func(o *Options) { o.Identity.Build = build }
	}
	members := []*labMember{l.start("a", of("v1")), l.start("b", of("v1"))}
	l.wait(time.Minute)
	l.order(func(t *table.Table) error {
		t.Canary = table.Canary{Build: "v2", Steps: []int{50, 100}, Every: 3600, Since: 1}
		return nil
	})
	canary := l.start("c", of("v2"))
	members = append(members, canary)
	l.wait(time.Minute)
	for n := range 160 {
		key := types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("object-%d", n)}
		if _, err := l.objects.Create(l.t.Context(), key, nil); err != nil {
			l.t.Fatal(err)
		}
		go func() {
			for {
				for _, m := range members {
					if _, ok := m.controller.Admit(l.t.Context(), key); !ok {
						continue
					}
					build := "v1"
					if m == canary {
						build = "v2"
					}
					took, err := takes(build, n)
					time.Sleep(took)
					m.controller.Ended(key, err)
					m.controller.Done(key)
				}
				select {
				case <-l.over:
					return
				case <-time.After(2 * time.Second):
				}
			}
		}()
	}
	return canary
}

// Rule R22, as members run in production: a canary goes back whose reconciles take longer, or fail, and one that is as
// good as the others does not. What they report is what was measured.
func TestCanary(t *testing.T) {
	for _, test := range []struct {
		name  string
		takes func(build string, n int) (time.Duration, error)
		state table.CanaryState
		text  string
	}{
		{"good", func(string, int) (time.Duration, error) { return 20 * time.Millisecond, nil }, table.CanaryRuns, ""},
		{"slow", func(build string, _ int) (time.Duration, error) {
			if build == "v2" {
				return 60 * time.Millisecond, nil
			}
			return 20 * time.Millisecond, nil
		}, table.CanaryBack, "takes longer: "},
		{"failing", func(build string, n int) (time.Duration, error) {
			if build == "v2" && n%4 == 0 {
				return 20 * time.Millisecond, errors.New("boom")
			}
			return 20 * time.Millisecond, nil
		}, table.CanaryBack, "it fails more often"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				canary := canaryLab(l, test.takes)
				l.wait(5 * time.Minute)
				now := l.table()
				if c := now.Canary; c.State != test.state || !strings.Contains(c.Verdict, test.text) {
					t.Fatalf("the canary is %+v, want %v with %q", c, test.state, test.text)
				}
				owned := now.Owned(canary.ID())
				want := now.CanarySlots()
				if owned != want || (want == slot.Set{}) != (test.state == table.CanaryBack) {
					t.Errorf("the canary's member owns %v, want %v", owned, want)
				}
				if n := l.events()["CanaryBack"]; (n == 1) != (test.state == table.CanaryBack) {
					t.Errorf("events %v", l.events())
				}
				if test.state != table.CanaryRuns {
					return
				}
				of := canary.account.Report(canary.ID(), nil).Trial
				if of == nil || of.Tries < trial.Enough || of.Changed == 0 || of.Failed != 0 || of.Objects == 0 {
					t.Fatalf("trial %+v", of)
				}
				seconds := 0.0
				for _, times := range of.Times {
					seconds += times.Seconds
				}
				if mean := seconds / float64(of.Changed); mean < 0.019 || mean > 0.021 {
					t.Errorf("reconciles take %v s in the mean, want 0.02", mean)
				}
			})
		})
	}
}
