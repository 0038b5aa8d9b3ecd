package planner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// memoryWorld has members whose slots take memory, some seconds after they got them. It carries out what the planner,
// which is member b, proposes.
type memoryWorld struct {
	Local
	t      *testing.T
	now    time.Duration
	table  *table.Table
	state  Memory
	dead   map[string]bool
	limit  int64
	cost   int64
	base   int64
	used   map[string]int64
	events []string
}

func (w *memoryWorld) Dead(id string) bool            { return w.dead[id] }
func (w *memoryWorld) OnTime(id string) bool          { return !w.dead[id] }
func (w *memoryWorld) Renewing(id string) bool        { return !w.dead[id] }
func (w *memoryWorld) Seen(string) bool               { return true }
func (w *memoryWorld) Alive(id string) bool           { return !w.dead[id] }
func (w *memoryWorld) TooOld(int) string              { return "" }
func (w *memoryWorld) WritesEnd(string) time.Duration { return 0 }
func (w *memoryWorld) Slot(slot.Slot) Slot            { return Slot{State: Open} }
func (w *memoryWorld) MemoryOf(id string) MemoryReport {
	return MemoryReport{Used: w.used[id], Limit: w.limit, Base: w.base}
}

// put adds a member that has been there for long.
func (w *memoryWorld) put(id string) {
	w.table.Put(table.Member{ID: id, Pod: id, PodUID: id, Build: "v1", Weight: 1, Joined: 1, MinFormat: 1,
		MaxFormat: table.Format})
	w.used[id] = w.base
}

// owned is how many slots a member has or is about to get.
func (w *memoryWorld) owned(id string) (n int64) {
	for _, r := range w.table.Runs {
		if r.Owner == id && r.Next == "" || r.Next == id {
			n += int64(r.Slots.Len())
		}
	}
	return n
}

// run lets seconds pass. Memory grows by a fifth of what it will take in each.
func (w *memoryWorld) run(seconds int) {
	w.t.Helper()
	for range seconds {
		w.now += time.Second
		for _, m := range w.table.Members {
			will := w.base + w.cost*w.owned(m.ID)
			w.used[m.ID] += min((will-w.used[m.ID]+4)/5, max(w.cost*4, will/5))
			if !w.dead[m.ID] && w.limit > 0 && will > w.limit {
				w.t.Fatalf("%v: %s has %d slots, which take %d of %d", w.now, m.ID, w.owned(m.ID), will, w.limit)
			}
		}
		for i := range w.table.Runs {
			if r := &w.table.Runs[i]; r.Next != "" {
				r.Owner, r.Next = r.Next, ""
			}
			w.table.Runs[i].Unsettled = false
		}
		self, _ := w.table.Member("b")
		version := fmt.Sprint(w.table.Epoch)
		saw := Observe(View{Config: &Config{Self: self}, Now: w.now, Table: w.table, Memory: w.state})
		p := Propose(View{
			Config: &Config{Self: self, RetryPeriod: 2 * time.Second, LeaseDuration: 15 * time.Second, MaxTable: 1 << 20},
			Local:  w, Now: w.now, Table: w.table, Version: version, Phase: Joined, Expelled: w.dead, Complete: true,
			Memory: saw.Memory,
		})
		if p.Err != nil {
			w.t.Fatal(p.Err)
		}
		w.state = p.Memory
		for _, n := range p.Notices {
			w.events = append(w.events, n.Reason)
		}
		if p.Table != nil {
			w.table = p.Table
		}
	}
}

func newMemoryWorld(t *testing.T, limit int64) *memoryWorld {
	w := &memoryWorld{
		t: t, limit: limit, cost: 20, base: 100, dead: map[string]bool{}, used: map[string]int64{}, now: time.Hour,
		table: &table.Table{Slots: 64, Key: slot.KeyName, Epoch: 7, Runs: []table.Run{
			{Slots: slot.Range{First: 0, Last: 20}, Owner: "a", Epoch: 5},
			{Slots: slot.Range{First: 21, Last: 42}, Owner: "b", Epoch: 5},
			{Slots: slot.Range{First: 43, Last: 63}, Owner: "c", Epoch: 5},
		}},
	}
	for _, id := range []string{"a", "b", "c"} {
		w.put(id)
	}
	w.run(60)
	return w
}

// R23: what no member has memory for waits, is reported, and comes as soon as a member has room. Nobody gets more than
// fits.
func TestR23SlotsWaitForMemory(t *testing.T) {
	w := newMemoryWorld(t, 700)
	w.dead["a"] = true
	w.run(2)
	if b, c := w.owned("b"), w.owned("c"); b > 24 || c > 24 {
		t.Errorf("b has %d slots, c %d: at once half of what they have room for, at most", b, c)
	}
	w.run(118)
	if b, c, waiting := w.owned("b"), w.owned("c"), w.owned("a"); b != 26 || c != 26 || waiting != 12 {
		t.Errorf("b has %d slots, c %d, and %d wait; want 26, 26, and 12", b, c, waiting)
	}
	if want := []string{"NoRoom"}; !slices.Equal(w.events, want) {
		t.Errorf("events %v, want %v", w.events, want)
	}
	w.put("d")
	w.run(40)
	if b, c, d := w.owned("b"), w.owned("c"), w.owned("d"); min(b, c, d) != 21 || b+c+d != 64 {
		t.Errorf("b has %d slots, c %d, d %d; want 21 or 22 each", b, c, d)
	}
}

// R23: what fits goes at once, and so it does without limits.
func TestR23WhatFitsGoesAtOnce(t *testing.T) {
	for _, limit := range []int64{0, 1000} {
		w := newMemoryWorld(t, limit)
		w.dead["a"] = true
		w.run(2)
		if b, c := w.owned("b"), w.owned("c"); b != 32 || c != 32 {
			t.Errorf("with limit %d b has %d slots, c %d; want 32 each", limit, b, c)
		}
	}
}

// R23: members that use nearly all of their memory for other things take what takes little of the rest, and a new one
// gets as much as the old ones live with.
func TestR23NearlyFull(t *testing.T) {
	w := newMemoryWorld(t, 100_000)
	w.base = 94_500
	w.run(60)
	w.dead["a"] = true
	w.run(2)
	if b, c := w.owned("b"), w.owned("c"); b != 32 || c != 32 {
		t.Errorf("b has %d slots, c %d; want 32 each", b, c)
	}
	w = newMemoryWorld(t, 541) // of which each uses 520 or 540
	w.put("d")
	w.dead["c"] = true
	w.run(60)
	if a, b, d := w.owned("a"), w.owned("b"), w.owned("d"); a+b+d != 64 {
		t.Errorf("a has %d slots, b %d, d %d; want all of 64", a, b, d)
	}
}

// R23: members of which no report shows what slots take get a former owner's share at most, and the rest later.
func TestR23UnknownCost(t *testing.T) {
	w := newMemoryWorld(t, 2000)
	w.state = Memory{}
	for _, id := range []string{"a", "c"} {
		w.dead[id] = true
	}
	for i := range w.table.Runs {
		w.table.Runs[i].Owner = []string{"a", "a", "c"}[i]
	}
	w.used["b"] = 100
	w.run(3)
	if b := w.owned("b"); b == 0 || b > 32 {
		t.Errorf("b has %d slots at once, want some, and at most a share of 32", b)
	}
	w.run(60)
	if b := w.owned("b"); b != 64 {
		t.Errorf("b has %d slots of 64", b)
	}
}

func TestSpare(t *testing.T) {
	m := func(used, limit int64) MemoryReport { return MemoryReport{Used: used, Limit: limit, Base: 100} }
	for _, c := range []struct {
		name       string
		members    []MemoryReport
		need, room int64
		ok         bool
	}{
		{"one", []MemoryReport{m(500, 1000)}, 400, 0, false},
		{"no limit known", []MemoryReport{m(500, 1000), m(500, 0)}, 0, 0, false},
		{"two of three remain", []MemoryReport{m(500, 1000), m(500, 1000), m(500, 1000)}, 400, 800, true},
		{"one of two", []MemoryReport{m(600, 1000), m(500, 1000)}, 500, 400, true},
		{"the one with room goes", []MemoryReport{m(500, 1000), m(500, 2000)}, 400, 400, true},
	} {
		if need, room, ok := Spare(c.members); need != c.need || room != c.room || ok != c.ok {
			t.Errorf("%s: %d, %d, %t; want %d, %d, %t", c.name, need, room, ok, c.need, c.room, c.ok)
		}
	}
}
