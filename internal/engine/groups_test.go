package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/test/require"
)

// R14: members of a program's groups say which controllers are in no group, or in two.
func TestR14Groups(t *testing.T) {
	inLab(t, func(l *lab) {
		g, err := group.Parse("operator", []string{"website", "certificate", "backup"}, "website", "certificate")
		require.NoError(t, err)
		serial := uint64(0)
		// The other group renews its report while it lives.
		other := func(runs string, d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); l.wait(5 * time.Second) {
				serial++
				l.reports.Other("sweep", &coverage.Report{Member: "sweep-0", Serial: serial, Setup: map[string]string{
					coverage.SettingProgram: "operator", coverage.SettingExpected: "backup,certificate,website",
					coverage.SettingControllers: runs,
				}})
			}
		}
		gaps := func() (found []group.Gap) {
			for _, m := range l.members {
				found = append(found, m.Status().Gaps...)
			}
			return found
		}
		for _, pod := range []string{"web-0", "web-1"} {
			l.start(pod, func(o *Options) { o.Group = g })
		}
		other("backup", 90*time.Second)
		if got := gaps(); len(got) > 0 {
			t.Errorf("%v though every controller is in one group", got)
		}
		other("certificate", 60*time.Second)
		want := []group.Gap{{Controller: "backup"}, {Controller: "certificate", Rotas: "sweep, website"}}
		if diff := cmp.Diff(want, gaps()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if n := l.events()["GroupsDiffer"]; n != 2 {
			t.Errorf("%d events, want one for each controller", n)
		}
		// Another program's rota does not count, nor does a group that has ended: its report is not renewed any more.
		other("backup", 60*time.Second)
		if got := gaps(); len(got) > 0 {
			t.Errorf("%v once that was mended", got)
		}
		l.wait(90 * time.Second)
		if !slices.Equal(gaps(), []group.Gap{{Controller: "backup"}}) {
			t.Errorf("%v after the other group has ended", gaps())
		}
	})
}

// Without a group nothing is announced. One that was not parsed is refused.
func TestOptionsGroup(t *testing.T) {
	r := testRota(t)
	if _, announced := r.settings()[coverage.SettingProgram]; announced {
		t.Error("a program without groups announces some")
	}
	o := Options{Name: "website", Namespace: "operators", Group: &group.Group{}}
	if _, err := o.withDefaults(); err == nil {
		t.Error("a group that was not parsed is taken")
	}
}
