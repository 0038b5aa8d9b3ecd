package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

const timeout = 10 * time.Second

// Table returns a table of one member that owns all slots.
func Table(epoch uint64) *table.Table {
	t := table.New(16, slot.KeyName, 1)
	t.Put(table.Member{ID: "web-0-x7k2p", Pod: "web-0", Weight: 1, MinFormat: 1, MaxFormat: 1, Joined: 1763712000})
	t.Update(slot.SetOf(slot.Range{First: 0, Last: 15}), func(r *table.Run) { r.Owner, r.Epoch = "web-0-x7k2p", epoch })
	t.Seal(epoch)
	return t
}

func create(t *testing.T, target Target, epoch uint64) member.Snapshot {
	t.Helper()
	s, o, err := target.Store.CreateTable(t.Context(), Table(epoch), timeout)
	outcome(t, o, err, member.OutcomeDone)
	return s
}

// outcome fails the test unless the write ended as wanted.
func outcome(t *testing.T, got member.Outcome, err error, want member.Outcome) {
	t.Helper()
	if got != want || (err == nil) != (want == member.OutcomeDone) {
		t.Fatalf("outcome %v, error %v; want outcome %v", got, err, want)
	}
}

func sameTable(t *testing.T, got member.Snapshot, want *table.Table) {
	t.Helper()
	if got.Err != nil || got.UID == "" || got.Version == "" {
		t.Fatalf("got %+v, want a table", got)
	}
	require.Equal(t, "table", table.Encode(want), table.Encode(got.Table))
}

func read(t *testing.T, target Target) member.Snapshot {
	t.Helper()
	s, err := target.Other.ReadTable(t.Context())
	require.NoError(t, err)
	return s
}

func tableLife(t *testing.T, target Target) {
	if s := read(t, target); !s.Missing() || s.Table != nil || s.Err != nil {
		t.Fatalf("got %+v, want a missing table", s)
	}
	_, o, err := target.Store.SwapTable(t.Context(), Table(1), "no-such-uid", "1", timeout)
	outcome(t, o, err, member.OutcomeMissing)

	created := create(t, target, 1)
	sameTable(t, created, Table(1))
	sameTable(t, read(t, target), Table(1))
	_, o, err = target.Other.CreateTable(t.Context(), Table(2), timeout)
	outcome(t, o, err, member.OutcomeConflict)

	swapped, o, err := target.Other.SwapTable(t.Context(), Table(2), created.UID, created.Version, timeout)
	outcome(t, o, err, member.OutcomeDone)
	sameTable(t, swapped, Table(2))
	if swapped.UID != created.UID || resourceversion.Compare(created.Version, swapped.Version) >= 0 {
		t.Fatalf("swapped %s %s to %s %s", created.UID, created.Version, swapped.UID, swapped.Version)
	}
	sameTable(t, read(t, target), Table(2))
}

func tableConflicts(t *testing.T, target Target) {
	first := create(t, target, 1)
	second, o, err := target.Store.SwapTable(t.Context(), Table(2), first.UID, first.Version, timeout)
	outcome(t, o, err, member.OutcomeDone)
	_, o, err = target.Other.SwapTable(t.Context(), Table(3), first.UID, first.Version, timeout)
	outcome(t, o, err, member.OutcomeConflict)
	_, o, err = target.Other.SwapTable(t.Context(), Table(3), "another-uid", second.Version, timeout)
	outcome(t, o, err, member.OutcomeConflict)
	// Kubernetes takes an empty precondition for none: it must not get there.
	_, o, err = target.Other.SwapTable(t.Context(), Table(3), first.UID, "", timeout)
	outcome(t, o, err, member.OutcomeFailed)
	_, o, err = target.Other.SwapTable(t.Context(), Table(3), "", second.Version, timeout)
	outcome(t, o, err, member.OutcomeFailed)
	sameTable(t, read(t, target), Table(2))
}

func tableInvalid(t *testing.T, target Target) {
	invalid := Table(1)
	invalid.Runs = nil
	_, o, err := target.Store.CreateTable(t.Context(), invalid, timeout)
	outcome(t, o, err, member.OutcomeFailed)
	s := create(t, target, 1)
	_, o, err = target.Store.SwapTable(t.Context(), invalid, s.UID, s.Version, timeout)
	outcome(t, o, err, member.OutcomeFailed)
	sameTable(t, read(t, target), Table(1))
}

func tableEdited(t *testing.T, target Target) {
	created := create(t, target, 1)
	watch := WatchTable(t, target.Store)
	sameTable(t, watch.Next(t).Snapshot, Table(1))
	target.EditTable(t, func(text map[string]string) { text["format"] = "99" })
	for _, s := range []member.Snapshot{watch.Next(t).Snapshot, read(t, target)} {
		if s.UID != created.UID || s.Table != nil || !errors.Is(s.Err, table.ErrFormat) {
			t.Fatalf("got %+v, want an unknown format under UID %s", s, created.UID)
		}
	}
	target.EditTable(t, func(text map[string]string) { clear(text) })
	if s := watch.Next(t); s.UID != created.UID || s.Table != nil || s.Err == nil {
		t.Fatalf("got %+v, want an error under UID %s", s, created.UID)
	}
}

func tableRestored(t *testing.T, target Target) {
	old := create(t, target, 1)
	copied := target.Text(t)
	_, o, err := target.Store.SwapTable(t.Context(), Table(2), old.UID, old.Version, timeout)
	outcome(t, o, err, member.OutcomeDone)
	target.RestoreTable(t, copied)
	restored := read(t, target)
	sameTable(t, restored, Table(1))
	if restored.UID == old.UID {
		t.Fatalf("restored under the old UID %s", old.UID)
	}
	_, o, err = target.Store.SwapTable(t.Context(), Table(3), old.UID, restored.Version, timeout)
	outcome(t, o, err, member.OutcomeConflict)
	sameTable(t, read(t, target), Table(1))
}

func tableWatch(t *testing.T, target Target) {
	watch := WatchTable(t, target.Other)
	if s := watch.Next(t); !s.Missing() || s.Err != nil || !s.Listed {
		t.Fatalf("got %+v, want a missing table, listed", s)
	}
	s := create(t, target, 1)
	const last = 20
	for epoch := uint64(2); epoch <= last; epoch++ {
		var o member.Outcome
		var err error
		s, o, err = target.Store.SwapTable(t.Context(), Table(epoch), s.UID, s.Version, timeout)
		outcome(t, o, err, member.OutcomeDone)
	}
	for epoch := uint64(1); epoch <= last; epoch++ {
		got := watch.Next(t)
		sameTable(t, got.Snapshot, Table(epoch))
		if got.Listed {
			t.Fatalf("epoch %d is said to be listed, though no version before it was left out", epoch)
		}
	}
	target.RemoveTable(t)
	if gone := watch.Next(t); !gone.Missing() || resourceversion.Compare(s.Version, gone.Version) >= 0 {
		t.Fatalf("got %+v, want a missing table at a version above %s", gone, s.Version)
	}
	again := create(t, target, last+1)
	seen := watch.Next(t)
	sameTable(t, seen.Snapshot, Table(last+1))
	if seen.UID != again.UID || seen.UID == s.UID {
		t.Fatalf("created again as %s, seen as %s, before %s", again.UID, seen.UID, s.UID)
	}
}

func tableReconnect(t *testing.T, target Target) {
	s := create(t, target, 1)
	watch := WatchTable(t, target.Store)
	sameTable(t, watch.Next(t).Snapshot, Table(1))
	for epoch := uint64(2); epoch < 6; epoch++ {
		target.Disconnect(t)
		// The other client may need a second attempt on the broken connection.
		var o member.Outcome
		var err error
		next := s
		for try := 0; try < 5 && o != member.OutcomeDone; try++ {
			next, o, err = target.Other.SwapTable(t.Context(), Table(epoch), s.UID, s.Version, timeout)
			if now := read(t, target); o == member.OutcomeConflict && now.Table.Epoch == epoch {
				next, o, err = now, member.OutcomeDone, nil
			}
		}
		outcome(t, o, err, member.OutcomeDone)
		s = next
		got := watch.Until(t, func(v Version) bool { return v.Table == nil || v.Table.Epoch >= epoch })
		sameTable(t, got.Snapshot, Table(epoch))
		if got.Listed {
			t.Fatalf("epoch %d is said to be listed, though the watch can go on from where it broke", epoch)
		}
	}
}
