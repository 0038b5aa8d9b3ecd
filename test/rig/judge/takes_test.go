package judge_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

func taken(worker, name string, start, end, deadline time.Duration) journal.Reconcile {
	return journal.Reconcile{
		Pod: worker, Key: types.NamespacedName{Namespace: "sites", Name: name}, UID: "uid-" + name, Generation: 3,
		Start: start, End: end, Deadline: deadline, Attempt: 1,
	}
}

func TestTakeOverlaps(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []journal.Reconcile
		want int
	}{
		{"one after the other", []journal.Reconcile{taken("w1", "a", 1, 5, 9), taken("w2", "a", 5, 7, 12)}, 0},
		{"two keys", []journal.Reconcile{taken("w1", "a", 1, 5, 9), taken("w2", "b", 2, 7, 12)}, 0},
		{"two workers", []journal.Reconcile{taken("w1", "a", 1, 5, 9), taken("w2", "a", 4, 7, 12)}, 1},
		{"one worker", []journal.Reconcile{taken("w1", "a", 1, 5, 9), taken("w1", "a", 4, 7, 12)}, 1},
		{"dead until its deadline", []journal.Reconcile{taken("w1", "a", 1, 0, 9), taken("w2", "a", 9, 10, 17)}, 0},
		{"dead, and too early", []journal.Reconcile{taken("w1", "a", 1, 0, 9), taken("w2", "a", 8, 10, 17)}, 1},
		{"stopped until after its deadline", []journal.Reconcile{taken("w1", "a", 1, 30, 9), taken("w2", "a", 9, 10, 17)}, 0},
		{"stopped, and too early", []journal.Reconcile{taken("w1", "a", 1, 30, 9), taken("w2", "a", 8, 10, 17)}, 1},
		{"stopped before it began, until after its deadline", []journal.Reconcile{
			taken("w1", "a", 10, 11, 9), taken("w2", "a", 9, 12, 17),
		}, 0},
		{"no deadline", []journal.Reconcile{taken("w1", "a", 1, 0, 0), taken("w2", "a", 100, 110, 120)}, 1},
		{"three", []journal.Reconcile{
			taken("w3", "a", 3, 8, 12), taken("w1", "a", 1, 9, 9), taken("w2", "a", 2, 7, 12),
		}, 3},
	} {
		if got := judge.TakeOverlaps(c.all); len(got) != c.want {
			t.Errorf("%s: %d overlaps, want %d: %v", c.name, len(got), c.want, got)
		}
	}
}

func TestOverdue(t *testing.T) {
	all := []journal.Reconcile{
		taken("w1", "a", 1, 12, 10), taken("w2", "a", 1, 13, 10), taken("w3", "a", 1, 0, 10), taken("w4", "a", 1, 30, 0),
		taken("stopped", "a", 1, 20, 10),
	}
	if got := judge.Overdue(all, func(worker string) bool { return worker == "stopped" }); got != 3 {
		t.Errorf("overdue by %v, want 3 ns", got)
	}
}

func TestRetaken(t *testing.T) {
	lost, stopped, never := taken("w1", "a", 5, 0, 20), taken("w1", "b", 6, 40, 20), taken("w1", "c", 7, 0, 20)
	all := []journal.Reconcile{
		lost, stopped, never,
		taken("w1", "d", 1, 9, 20),  // was done before
		taken("w2", "d", 8, 0, 20),  // another worker's
		taken("w1", "e", 11, 0, 20), // taken after it went on
		taken("w2", "c", 2, 4, 20),  // before
		taken("w3", "a", 25, 27, 40), taken("w2", "a", 22, 23, 40), taken("w1", "b", 50, 51, 60),
	}
	want := []judge.Retake{{Lost: lost, Waited: 12}, {Lost: stopped, Waited: 40}, {Lost: never, Waited: -1}}
	require.Equal(t, "retaken", want, judge.Retaken(all, "w1", 10))
}

func TestUnseen(t *testing.T) {
	update := func(name string, generation int64) judge.Update {
		return judge.Update{
			Key: types.NamespacedName{Namespace: "sites", Name: name}, UID: "uid-" + name, Generation: generation,
			Commit: time.Duration(generation),
		}
	}
	all := []journal.Reconcile{
		taken("w1", "seen", 1, 2, 9), taken("w1", "stale", 1, 2, 9), taken("w1", "unfinished", 1, 0, 9),
		taken("w1", "deleted", 1, 2, 9),
	}
	namesake := taken("w1", "namesake", 1, 2, 9)
	namesake.UID = "uid of its predecessor"
	updates := []judge.Update{
		update("seen", 2), update("seen", 3), update("stale", 4), update("stale", 3), update("unfinished", 3),
		update("deleted", 4), update("never", 1), update("namesake", 2),
	}
	got := judge.Unseen(updates, append(all, namesake), func(key types.NamespacedName, _ string) bool {
		return key.Name != "deleted"
	})
	want := []judge.Update{update("never", 1), update("namesake", 2), update("unfinished", 3), update("stale", 4)}
	require.Equal(t, "unseen", want, got)
}
