package conformance_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rota-dev/rota/dispatch/client"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/conformance"
	"github.com/rota-dev/rota/test/require"
)

// many is more than fit into one request.
const many = wire.MaxTakes + 50

// newTier returns a tier with many keys.
func newTier(t *testing.T) *conformance.Tier {
	t.Helper()
	tier, err := conformance.NewTier(time.Minute, nil)
	require.NoError(t, err)
	t.Cleanup(tier.Close)
	tier.Extra = true
	for i := range many {
		tier.Change(fmt.Sprintf("ok-%d", i), false)
	}
	return tier
}

// settled says whether a client has extended all takes, and ended all but one, in two requests each time.
func settled(t *testing.T, tier *conformance.Tier) {
	t.Helper()
	if _, counts := tier.Stats(); counts.Done != many-1 || counts.Retried != 1 || counts.Taken != many {
		t.Errorf("%d keys, of which one fails: %+v", many, counts)
	}
	for path, most := range map[string]int{wire.PathExtend: 2, wire.PathDone: 4} {
		requests := tier.Requests(path)
		if len(requests) != most {
			t.Errorf("%s: %d requests, want %d", path, len(requests), most)
		}
		for _, r := range requests {
			if r.Status != 200 {
				t.Errorf("%s: %d", path, r.Status)
			}
		}
	}
}

// TestGoSeveral has the Go client end and extend several takes at a time.
func TestGoSeveral(t *testing.T) {
	t.Parallel()
	tier := newTier(t)
	c, err := client.New(client.Options{URLs: []string{tier.URL()}})
	require.NoError(t, err)
	takes, err := c.Take(t.Context(), wire.TakeRequest{Worker: "w", Max: wire.MaxKeys})
	if err != nil || len(takes) != many {
		t.Fatal(len(takes), err)
	}
	for i, err := range c.ExtendAll(t.Context(), takes, 5*time.Minute) {
		if err != nil || takes[i].Remaining() < 2*time.Minute {
			t.Errorf("%s: %v left, %v", takes[i], takes[i].Remaining(), err)
		}
	}
	endings := make([]client.Ending, len(takes))
	for i, k := range takes {
		endings[i] = client.Ending{Take: k, Result: client.Result{Retry: i == 1, Reason: "as it should"}}
	}
	for i, err := range c.DoneAll(t.Context(), endings) {
		if err != nil {
			t.Errorf("%s: %v", takes[i], err)
		}
	}
	endings[0].Result.Retry = true // it was done otherwise
	for i, err := range c.DoneAll(t.Context(), endings) {
		if errors.Is(err, client.ErrEnded) != (i == 0) || i > 0 && err != nil {
			t.Errorf("%s once more: %v", takes[i], err)
		}
	}
	settled(t, tier)
}

// pythonSeveral does what TestGoSeveral does.
const pythonSeveral = `
import os, rota_dispatch as rota
client = rota.Client(os.environ["ROTA_DISPATCH_URL"])
takes = client.take("w", max=1000)
assert all(p is None for p in client.extend_all(takes, 300)), "extended"
assert all(t.remaining() > 120 for t in takes), "remaining"
endings = [rota.Ending(t, retry=i == 1, reason="as it should") for i, t in enumerate(takes)]
assert all(p is None for p in client.done_all(endings)), "done"
endings[0] = rota.Ending(takes[0], retry=True)
again = client.done_all(endings)
assert isinstance(again[0], rota.Ended) and all(p is None for p in again[1:]), again
assert client.done_all([]) == [] and client.extend_all([]) == []
`

func TestPythonSeveral(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	tier := newTier(t)
	cmd := exec.CommandContext(t.Context(), "python3", "-W", "error::SyntaxWarning", "-c", pythonSeveral)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+clients(t, "python"), "PYTHONDONTWRITEBYTECODE=1",
		"ROTA_DISPATCH_URL="+tier.URL())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	settled(t, tier)
}
