package sim

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/require"
)

// TestTrace: a trace has the faults, the processes and what was violated, and no two things at once in one thread.
func TestTrace(t *testing.T) {
	// A life in which everything is deleted, and lists of any version are wrong.
	var life *Timeline
	var w *World
	for seed := uint64(187); w == nil || !w.Failed() || !w.had(FaultAllDeleted); seed++ {
		if seed > 600 {
			t.Fatal("none of many lives is such a one")
		}
		life = &Timeline{}
		w = runChaos(seed, Options{Timeline: life}, spoiled{oldLists: true})
	}
	checkTrace(t, life, w.Violations()[0].Rule, FaultAllDeleted.String(), "p2-2", "gate open")
	_, life = RecordChaos(3)
	checkTrace(t, life, "in flight", "write commits", "Lease written, open true", "deadline passed")
}

// had says whether a fault happened.
func (w *World) had(f Fault) bool {
	return slices.ContainsFunc(w.Faults, func(s FaultSpan) bool { return s.Fault == f })
}

func checkTrace(t *testing.T, life *Timeline, wants ...string) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, life.WriteTrace(&out))
	var trace struct{ TraceEvents []traceEvent }
	require.NoError(t, json.Unmarshal(out.Bytes(), &trace))
	for _, want := range wants {
		if !slices.ContainsFunc(trace.TraceEvents, func(e traceEvent) bool { return strings.Contains(e.Name, want) }) {
			t.Errorf("no %q in the trace", want)
		}
	}
	ends := map[[2]int]int64{}
	for _, e := range trace.TraceEvents {
		if e.Phase != "X" {
			continue
		}
		thread := [2]int{e.Process, e.Thread}
		if e.At < ends[thread] || e.Took < 0 {
			t.Errorf("%+v begins before the last one there has ended, at %d", e, ends[thread])
		}
		ends[thread] = e.At + e.Took
	}
}

// To record a life does not change it.
func TestRecordedLivesAreTheSame(t *testing.T) {
	for _, seed := range []uint64{3, 4} {
		recorded, _ := RecordChaos(seed)
		if plain := RunChaos(seed, nil); plain.Counts != recorded.Counts || plain.Now() != recorded.Now() {
			t.Errorf("seed %d: %v when recorded, %v otherwise", seed, recorded.Counts, plain.Counts)
		}
	}
}
