package planner

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// lately answers that some members may still have long writes under way.
type lately struct {
	Local
	left map[string]time.Duration
}

func (l lately) WritesEnd(id string) time.Duration { return l.left[id] }

// R7: new owners wait for the rest of the expelled member's long writes, and for those that it was waiting for itself.
func TestR07ExpelsWaitForLongWrites(t *testing.T) {
	waits := &table.Table{
		Runs: []table.Run{
			{Slots: slot.Range{First: 0, Last: 3}, Owner: "a", Epoch: 5},
			{Slots: slot.Range{First: 4, Last: 7}, Owner: "b", Epoch: 7, Unsettled: true},
		},
		Notes: map[uint64]table.Note{7: {Cause: table.CauseExpelled, Wait: 9 * time.Second}},
	}
	for _, c := range []struct {
		name string
		dead []string
		left map[string]time.Duration
		want time.Duration
	}{
		{"nothing announced", []string{"a"}, nil, 0},
		{"the rest of what it announced", []string{"a"}, map[string]time.Duration{"a": 4 * time.Second}, 4 * time.Second},
		{"the longest of two", []string{"a", "c"}, map[string]time.Duration{"a": 4 * time.Second, "c": 6 * time.Second},
			6 * time.Second},
		{"what it was waiting for", []string{"b"}, map[string]time.Duration{"b": 4 * time.Second}, 9 * time.Second},
	} {
		p := newProposer(View{Table: waits, Local: lately{left: c.left}})
		if note := p.expelNote(c.dead); note.Wait != c.want || note.Cause != table.CauseExpelled {
			t.Errorf("%s: the note is %+v, want a wait of %v", c.name, note, c.want)
		}
	}
}
