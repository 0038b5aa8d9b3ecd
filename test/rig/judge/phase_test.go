package judge_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// TestMoved: in a phase, a slot is handed over, and another one is a killed process's. Its way begins with the kill.
func TestMoved(t *testing.T) {
	world := judge.World{Slots: 2, Key: slot.KeyName}
	var sites [2]judge.Site // by slot
	for i := range 20 {
		site := judge.Site{NamespacedName: key(fmt.Sprint("x", i))}
		sites[world.SlotOf(site)] = site
	}
	update := func(s slot.Slot, commit time.Duration) judge.Latency {
		return judge.Latency{Update: judge.Update{Key: sites[s].NamespacedName, Commit: commit}, Waited: 10}
	}
	r := &judge.Records{
		World: world, History: history(), Moves: history().Moves(),
		Latencies:  []judge.Latency{update(0, 4), update(0, 6), update(1, 3), update(1, 5)},
		Reconciles: []journal.Reconcile{{Pod: "b", Key: sites[0].NamespacedName, UID: "1", Epoch: 2, Start: 7, End: 8}},
	}
	var victims slot.Set
	victims.Add(0)
	p := &judge.Phase{Start: 3, End: 8, Sites: sites[:], Victim: "a", Killed: 5, KilledEpoch: 1, VictimsSlots: victims}
	moved, err := r.Moved(p, 1)
	if err != nil || moved.Slots != 2 || moved.Transfers != 2 || moved.Objects != 8 || moved.TableWrites != 5 ||
		!slices.Equal(moved.Waits, []time.Duration{9, 9}) {
		t.Errorf("%+v, %v", moved, err)
	}
	if first, last := r.TakenOver(p); first != 2 || last != 2 {
		t.Errorf("taken over after %d to %d, want 2", first, last)
	}
	for at, want := range map[time.Duration]bool{6: true, 8: false} {
		if got := r.Excused(judge.Deletion{Site: sites[0], Commit: at}, []*judge.Phase{p}); got != want {
			t.Errorf("a deletion in the killed process's slot at %d: excused %v", at, got)
		}
	}
}
