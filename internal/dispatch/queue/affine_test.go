package queue_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// Of many workers that ask with Affine, only so many get the same keys again. The others get what nobody is preferred
// for, and a key that has waited for long.
func TestMaxAffine(t *testing.T) {
	q, err := queue.New(queue.Config{Slots: 1, Kinds: []string{"Pod"}, MaxAffine: 1})
	require.NoError(t, err)
	q.SetDeadline(0, time.Hour)
	q.Open(0, slot.Count(1).All(), 1)
	for i, worker := range []string{"first", "second"} {
		err := q.Ask(0, queue.Ask{ID: uint64(i), Worker: worker, Max: 100, Affine: true, Stream: true})
		require.NoError(t, err)
	}
	got := func(now time.Duration) map[string]int {
		out := map[string]int{}
		for _, a := range q.Actions(now) {
			for _, take := range a.(queue.Given).Takes { // nothing drains
				out[take.Worker]++
			}
		}
		return out
	}
	change := func(now time.Duration, from int) {
		t.Helper()
		for i := range 100 {
			err := q.Change(now, queue.Change{Key: queue.Key{Kind: "Pod", Name: strconv.Itoa(from + i)}})
			require.NoError(t, err)
		}
	}
	change(0, 0)
	if n := got(0); n["first"] != 100 || n["second"] != 0 {
		t.Errorf("takes %v, want all for the first worker", n)
	}
	change(0, 100)
	if n := got(0); len(n) != 0 {
		t.Errorf("takes %v of keys that wait for the first worker", n)
	}
	if wake := q.Wake(); wake != time.Second {
		t.Errorf("it wants to wake at %v, want when the keys have waited for long", wake)
	}
	if n := got(time.Second); n["second"] != 100 {
		t.Errorf("takes %v, want all for the second worker", n)
	}
}

func TestConfigRefuses(t *testing.T) {
	for name, c := range map[string]queue.Config{
		"a negative number of workers": {MaxAffine: -1},
		"a negative number of keys":    {MaxTaken: map[string]int{"Pod": -1}},
		"keys of another kind":         {MaxTaken: map[string]int{"Job": 1}},
	} {
		c.Slots, c.Kinds = 1, []string{"Pod"}
		if _, err := queue.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
