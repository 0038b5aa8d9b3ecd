package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// A done that is sent again succeeds for a while, and changes nothing. One that differs, or comes too late, does not.
func TestDoneAgain(t *testing.T) {
	q, err := New(Config{Slots: 1, Kinds: []string{"K"}})
	require.NoError(t, err)
	all := slot.SetOf(slot.Range{First: 0, Last: 0})
	q.Open(0, all, 1)
	q.SetDeadline(0, time.Hour)
	require.NoError(t, q.Change(0, Change{Key: Key{Kind: "K", Name: "a"}}))
	require.NoError(t, q.Ask(0, Ask{ID: 1, Worker: "w", Max: 1}))
	given, _ := q.Actions(0)[0].(Given)
	id, retry := given.Takes[0].ID, Result{Retry: true, Reason: "r", After: time.Second}
	for i, c := range []struct {
		at     time.Duration
		worker string
		result Result
		want   error
	}{
		{0, "w", retry, nil},
		{time.Second, "w", retry, nil},
		{time.Second, "other", retry, ErrTake},
		{time.Second, "w", Result{}, ErrTake},
		{doneFor, "w", retry, nil},
		{doneFor + time.Second, "w", retry, ErrTake},
	} {
		if err := q.Done(c.at, id, c.worker, c.result); !errors.Is(err, c.want) {
			t.Errorf("%d: %v, want %v", i, err, c.want)
		}
		if q.Counts().Retried != 1 {
			t.Errorf("%d: it counts %d times", i, q.Counts().Retried)
		}
	}
}

// So many are remembered, the latest.
func TestDonesAreForgotten(t *testing.T) {
	var r recent
	for id := range uint64(3 * doneMax) {
		r.add(doneTake{id: id, worker: "w"})
	}
	if len(r.byID) != doneMax || r.has(0, 2*doneMax-1, "w", Result{}) || !r.has(0, 2*doneMax, "w", Result{}) {
		t.Errorf("%d are remembered", len(r.byID))
	}
	if r.has(doneFor+1, 3*doneMax-1, "w", Result{}) || r.byID != nil || r.order != nil {
		t.Error("they are remembered for too long")
	}
}
