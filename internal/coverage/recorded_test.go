package coverage_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// TestRecordedReports: what former builds reported is read as far as they knew of it, and what they knew is reported in
// the same form, so that they read it, too. The files are full() as package coverage of these commits wrote it:
// before-loads 0601e9d5, before-trials 87153a7b, trials 1eb3217d. Never write them anew: a field keeps its form. What has another meaning gets
// another field: field trial counted tries, and field canary counts objects.
func TestRecordedReports(t *testing.T) {
	for name, unknown := range map[string]func(*coverage.Report){
		"before-loads":  func(r *coverage.Report) { r.Loads, r.Trial = nil, nil },
		"before-trials": func(r *coverage.Report) { r.Trial = nil },
		"trials":        func(r *coverage.Report) { r.Trial = nil },
	} {
		text, err := os.ReadFile("testdata/recorded/" + name + ".json")
		require.NoError(t, err)
		var recorded map[string]string
		require.NoError(t, json.Unmarshal(text, &recorded))
		want := full()
		want.Refused, want.Unlabelled, want.Blocked = nil, nil, nil // no recorded build knew of them
		unknown(want)
		got, err := coverage.Decode(recorded)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(slot.Set{})); d != "" {
			t.Errorf("%s is read otherwise (-want +got):\n%s", name, d)
		}
		delete(recorded, "trial")
		written := encode(t, full())
		for field, want := range recorded {
			if written[field] != want {
				t.Errorf("%s: field %s is written otherwise:\n%q\nit was:\n%q", name, field, written[field], want)
			}
		}
		// Builds that do not know a field leave it out when they read, and so does this one.
		recorded["weather"] = "fine"
		if more, err := coverage.Decode(recorded); err != nil || !cmp.Equal(got, more, cmp.AllowUnexported(slot.Set{})) {
			t.Errorf("%s with another field: %v", name, err)
		}
	}
}
