package skew

import (
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/demo/dispatch"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig"
)

// TestDispatch has workers of this release and of each one before it take keys from dispatchers of this release; then
// the dispatchers are rolled back one by one, and asked for one another's keys meanwhile.
func TestDispatch(t *testing.T) {
	withEach(t, func(t *testing.T, old *Build, self string) {
		report, err := dispatch.Run(t.Context(), dispatch.Options{
			TakeLength: 4 * time.Second, Release: old.Demo, StageOptions: rig.StageOptions{
				Objects: 60, Rate: 10, Slots: slot.DefaultCount, LeaseDuration: 6 * time.Second,
				Progress: t.Output(), Command: []string{self},
			},
		})
		require.NoError(t, err)
		report.RetakenBoundSeconds *= 10 // other tests may run beside this one
		report.TakeOverBoundSeconds *= 10
		if bad := report.Failures(); len(bad) > 0 {
			t.Errorf("%s", strings.Join(bad, "; "))
		}
		var text strings.Builder
		require.NoError(t, report.WriteText(&text))
		t.Log(text.String())
	})
}
