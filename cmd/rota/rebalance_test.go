package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

func TestPrintPlan(t *testing.T) {
	p := &view.Plan{
		Namespace: "ns", Name: "web", Epoch: 43, Now: 2, Replicas: 2, Slots: 128, Objects: ptr.To(70), Duties: 1,
		Members: []view.PlannedMember{
			{ID: "web-0-a", Weight: 1, Slots: 128, Then: 128, Objects: ptr.To(60), ObjectsThen: ptr.To(60)},
			{ID: "web-1-b", Weight: 1, Slots: 128, Loses: 128, Objects: ptr.To(70), ObjectsThen: ptr.To(0), Duties: 1, Ends: true},
			{ID: "+new-1", Weight: 1, Gains: 128, Then: 128, Objects: ptr.To(0), ObjectsThen: ptr.To(70), DutiesThen: 1, New: true},
		},
		Moves: []view.PlannedMove{{First: 0, Last: 127, From: "web-1-b", To: "+new-1"}, {First: 256, Last: 256, Duty: "report", From: "web-1-b", To: "+new-1"}},
		Notes: []string{"so it is"}, DryRun: true,
	}
	var out bytes.Buffer
	require.NoError(t, printPlan(&out, paint{}, p, false))
	golden.File(t, "testdata/plan_printed.txt", out.String())
	for n := range planMoves {
		p.Moves = append(p.Moves, view.PlannedMove{First: n, Last: n, From: "web-1-b", To: "+new-1"})
	}
	for wide, want := range map[bool]string{false: "and 2 more runs of slots: -o wide lists them", true: fmt.Sprintf("\n  %d  web-1-b", planMoves-1)} {
		out.Reset()
		if err := printPlan(&out, paint{on: true}, p, wide); err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "\x1b[33mends") {
			t.Errorf("wide %v: %v, no %q in\n%s", wide, err, want, out.String())
		}
	}
	p.Moves, p.Objects, p.Slots = nil, nil, 0
	out.Reset()
	if err := printPlan(&out, paint{}, p, false); err != nil || !strings.Contains(out.String(), "\nnothing to move: ") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Dry runs of `rota rebalance` for other numbers of replicas, and the history, on a real API server.
func TestPlanAndHistoryOfARota(t *testing.T) {
	t.Parallel()
	tab := halves()
	tab.Expels = []table.Expel{{Pod: "web-9", At: time.Now().Unix() - 90}}
	w := writeRota(t, tab)
	stranger := t.TempDir() + "/stranger"
	require.NoError(t, controlplane.For(t).WriteUserKubeconfig(stranger, "stranger"))
	w.converse(t, "rebalance.txt", "$STRANGER", stranger)
	_, out, _ := w.rota(t, "rebalance --dry-run --replicas 3 -o json")
	var back view.Plan
	if err := json.Unmarshal([]byte(out), &back); err != nil || back.Slots != 85 || len(back.Members) != 3 || back.Objects == nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
