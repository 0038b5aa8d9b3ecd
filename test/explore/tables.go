package explore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// tables holds every table once, so that a pointer tells it.
type tables struct {
	byText map[string]*table.Table
	ids    map[*table.Table]int
	list   []*table.Table
	epochs [][]int // of each, all that occur in it
}

func newTables() tables {
	return tables{
		byText: map[string]*table.Table{}, ids: map[*table.Table]int{nil: 0}, list: []*table.Table{nil}, epochs: [][]int{nil},
	}
}

// tableID is 0 for none.
func (x *space) tableID(t *table.Table) int {
	id, ok := x.tables.ids[t]
	if !ok {
		panic("a table that was not interned")
	}
	return id
}

// intern returns the one table that equals t.
func (x *space) intern(t *table.Table) *table.Table {
	if t == nil {
		return nil
	}
	if _, known := x.tables.ids[t]; known {
		return t
	}
	key := tableKey(t)
	if known, ok := x.tables.byText[key]; ok {
		return known
	}
	// Through the text, as the real ones: what does not survive it must not work here either.
	decoded, err := table.Decode(table.Encode(t))
	if err == nil && tableKey(decoded) != key {
		err = fmt.Errorf("%+v is read as %+v", t, decoded)
	}
	if err != nil {
		panic(fmt.Errorf("a table does not survive its text: %w", err))
	}
	epochs := []int{int(t.Epoch)}
	for _, r := range t.Runs {
		if r.Epoch != 0 {
			epochs = append(epochs, int(r.Epoch))
		}
	}
	for e := range t.Notes {
		epochs = append(epochs, int(e))
	}
	slices.Sort(epochs)
	x.tables.ids[decoded] = len(x.tables.list)
	x.tables.byText[key] = decoded
	x.tables.list = append(x.tables.list, decoded)
	x.tables.epochs = append(x.tables.epochs, slices.Compact(epochs))
	return decoded
}

func tableKey(t *table.Table) string {
	var b encoder
	b.text(t.UID)
	b.int(int(t.Epoch))
	b.int(len(t.Members))
	for _, m := range t.Members {
		b.text(m.ID)
		b.int(int(m.Joined))
		b.bools(m.Leaving)
		b.text(m.Duties, m.Labels)
	}
	b.int(len(t.Duties))
	b.text(t.Duties...)
	b.int(int(t.Older))
	b.int(int(t.Pause.Since))
	b.text(t.Pause.By, t.Pause.Reason)
	b.int(len(t.Drains))
	for _, d := range t.Drains {
		b.text(d.ID, d.Pod, d.PodUID, d.Container, d.By, d.Reason)
		b.int(int(d.Since))
		b.int(int(d.Lost))
	}
	c := &t.Canary
	b.text(c.Build, c.State.String(), c.Verdict, c.By, c.Reason)
	b.text(c.Namespaces...)
	for _, n := range []int{len(c.Steps), len(c.Namespaces), c.Step, int(c.Began), int(c.Every), int(c.Since)} {
		b.int(n)
	}
	for _, percent := range c.Steps {
		b.int(percent)
	}
	b.int(len(t.Pins))
	for _, p := range t.Pins {
		b.text(p.Object, p.Labels, p.By, p.Reason)
		b.int(int(p.Since))
	}
	b.int(len(t.Runs))
	for _, r := range t.Runs {
		b.int(int(r.Slots.First))
		b.int(int(r.Slots.Last))
		b.int(int(r.Epoch))
		b.text(r.Owner, r.Next)
		b.bools(r.Ready, r.Unsettled)
	}
	b.int(len(t.Notes))
	for _, e := range slices.Sorted(maps.Keys(t.Notes)) {
		b.int(int(e))
		b.int(int(t.Notes[e].Cause))
	}
	b.int(len(t.Gone))
	for _, g := range t.Gone {
		b.int(int(g.Slot))
	}
	b.int(len(t.Expels))
	for _, e := range t.Expels {
		b.text(e.Pod)
		b.int(int(e.At))
	}
	return string(b)
}

// renameTable visits the epochs of a table, and returns the one that has those instead.
func (x *space) renameTable(t *table.Table, v visit) *table.Table {
	if t == nil {
		return nil
	}
	same := true
	for _, e := range x.tables.epochs[x.tableID(t)] {
		same = v(classEpoch, e) == e && same
	}
	if same {
		return t
	}
	c := t.Clone()
	v.uint(classEpoch, &c.Epoch)
	clear(c.Notes)
	for e, n := range t.Notes {
		c.Notes[uint64(v(classEpoch, int(e)))] = n
	}
	for i := range c.Runs {
		v.uint(classEpoch, &c.Runs[i].Epoch)
	}
	return x.intern(c)
}
