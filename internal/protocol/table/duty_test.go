package table_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

const (
	web0 = "web-0-x7k2p"
	web1 = "web-1-p3m9q"
)

// withDuties is a sample with duties: web-0 can do a and c, web-1 a and b. Nobody has c.
func withDuties() *table.Table {
	t := sample()
	for i, list := range []string{"a,c", "a,b"} {
		m := t.Members[i]
		m.MaxFormat, m.Duties, m.Leaving = 3, list, false
		t.Put(m)
	}
	give := func(name, owner, next string) {
		s, _ := t.DutySlot(name)
		t.Update(slot.SetOf(slot.Range{First: s, Last: s}), func(r *table.Run) { r.Owner, r.Epoch, r.Next = owner, 42, next })
	}
	give("a", web0, web1)
	give("b", web1, "")
	t.Seal(44)
	return t
}

// Duties have a field of their own. Their slots follow those of hashes.
func TestEncodeDuties(t *testing.T) {
	tab := withDuties()
	tab.Older = 1763711000
	require.NoError(t, tab.Valid())
	text := table.Encode(tab)
	for field, want := range map[string]string{
		"format": "3", "older": "1763711000",
		"duties": "a 256 web-0-x7k2p 42 -> web-1-p3m9q\nc 257 -\nb 258 web-1-p3m9q 42\n",
		"able":   "256,258 *\n256-257 web-0-x7k2p\n",
	} {
		if text[field] != want {
			t.Errorf("field %s:\n%s\nwant:\n%s", field, text[field], want)
		}
	}
	if strings.Contains(text["runs"], "256") {
		t.Errorf("duties among the runs:\n%s", text["runs"])
	}
	got, err := table.Decode(text)
	require.NoError(t, err)
	require.Equal(t, "Decode of Encode", tab, got, cmpopts.EquateEmpty())
}

// Without duties a table is written as programs write it that know of none.
func TestOlderFormatWithoutDuties(t *testing.T) {
	tab := withDuties()
	for _, m := range tab.Members {
		for _, name := range []string{"a", "b", "c"} {
			s, _ := tab.DutySlot(name)
			tab.Update(slot.SetOf(slot.Range{First: s, Last: s}), func(r *table.Run) { *r = table.Run{Slots: r.Slots, Epoch: r.Epoch} })
		}
		m.Duties = ""
		tab.Put(m)
	}
	tab.Seal(50)
	text := table.Encode(tab)
	if text["format"] != "1" || text["duties"]+text["able"]+text["older"] != "" || tab.Total() != 256 {
		t.Errorf("format %s, duties %q, %d slots", text["format"], text["duties"], tab.Total())
	}
	require.NoError(t, tab.Valid())
}

// A duty keeps its slot while somebody announces it. A slot without a duty is given to the next new one.
func TestDutiesKeepTheirSlots(t *testing.T) {
	tab := withDuties()
	before, _ := tab.DutySlot("b")
	tab.Remove(web0) // alone announced c, and owned a
	tab.Seal(45)
	require.Equal(t, "duties", []string{"a", "", "b"}, tab.Duties)
	if s, ok := tab.DutySlot("b"); !ok || s != before {
		t.Errorf("b moved from slot %v to %v", before, s)
	}
	if _, ok := tab.DutySlot(""); ok {
		t.Error("a slot without a duty has a name")
	}
	require.NoError(t, tab.Valid())
	m, _ := tab.Member(web1)
	m.Duties = "a,b,d,e"
	tab.Put(m)
	tab.Seal(46)
	require.Equal(t, "duties", []string{"a", "d", "b", "e"}, tab.Duties)
	require.Equal(t, "DutyCounts", map[string]int{"": 3, web1: 1}, tab.DutyCounts())
	if n := tab.Counts()[""]; n != 213-43+56+43 && n == 0 {
		t.Errorf("%d slots without an owner", n)
	}
	tab.Remove(web1)
	tab.Seal(47)
	if len(tab.Duties) != 0 || tab.Total() != 256 {
		t.Errorf("duties that nobody announces: %q", tab.Duties)
	}
}

func TestValidDuties(t *testing.T) {
	slotOf := func(tab *table.Table, name string) slot.Set {
		s, _ := tab.DutySlot(name)
		return slot.SetOf(slot.Range{First: s, Last: s})
	}
	put := func(list string) func(*table.Table) {
		return func(tab *table.Table) {
			m, _ := tab.Member(web0)
			m.Duties = list
			tab.Put(m)
		}
	}
	many := make([]string, slot.MaxDuties+1)
	for i := range many {
		many[i] = fmt.Sprintf("%04d", i)
	}
	for _, test := range []struct {
		want   string
		change func(*table.Table)
	}{
		{"member web-0-x7k2p does not announce it", func(tab *table.Table) {
			tab.Update(slotOf(tab, "b"), func(r *table.Run) { r.Next = web0 })
		}},
		{"duty a: member web-0-x7k2p does not announce", put("c")},
		{`duty "a b"`, put("a,a b,c")},
		{"not in order", put("c,a")},
		{"listed twice", put("a,a,c")},
		{"513 duties", put(table.JoinDuties(append(many[:slot.MaxDuties-2], "a", "c")...))},
		{"not every member reads", func(tab *table.Table) { tab.Members[1].MaxFormat = 2 }},
		{"listed twice", func(tab *table.Table) { tab.Duties[1] = "a" }},
		{"it announces duty c, which is not in the table", func(tab *table.Table) { tab.Duties[1] = "x" }},
		{"the last duty has no name", func(tab *table.Table) { tab.Duties[2] = "" }},
		{"each duty must have its own run", func(tab *table.Table) {
			n := len(tab.Runs)
			tab.Runs = tab.Runs[:n-1]
			tab.Runs[n-2].Slots.Last++
		}},
		{"must tile the slots 0 to 258", func(tab *table.Table) { tab.Runs = tab.Runs[:len(tab.Runs)-1] }},
		{"must tile the slots 0 to 255", func(tab *table.Table) {
			n := len(tab.Runs)
			tab.Runs[n-4].Slots.Last++
			tab.Runs = append(tab.Runs[:n-3], tab.Runs[n-2:]...)
		}},
		{"it has no duty", func(tab *table.Table) {
			tab.Members[0].Duties = "a"
			tab.Duties[1] = ""
			tab.Update(slot.SetOf(slot.Range{First: 257, Last: 257}), func(r *table.Run) { r.Epoch = 3 })
		}},
	} {
		tab := withDuties()
		test.change(tab)
		require.ErrorSays(t, tab.Valid(), test.want)
	}
}

func TestDecodeRefusesDuties(t *testing.T) {
	for _, test := range []struct{ field, old, new, want string }{
		{"duties", "a 256", "a 257", "the next one is 256"},
		{"duties", "a 256", "a", "field duties, line 1"},
		{"duties", "c 257 -", "- 257 web-0-x7k2p 42", "there is no duty"},
		{"duties", "web-0-x7k2p 42 ->", "web-9-x7k2p 42 ->", "not a member"},
		{"able", "256-257", "256-256", "field able, line 2"},
		{"able", "256-257", "255-257", "there is no duty"},
		{"able", "256-257", "256-259", "there is no duty"},
		{"able", "256,258", "258,256", "field able, line 1"},
		{"able", "256,258 *", "256,258", "want slots members"},
		{"able", "256-257 web-0-x7k2p", "256-257 *", "two lines for all other members"},
		{"able", "256-257 web-0-x7k2p", "256-257 web-0-x7k2p web-0-x7k2p", "in two lines"},
		{"able", "256-257 web-0-x7k2p", "256-257 web-7-x7k2p", "not a member"},
		{"able", "256-257 web-0-x7k2p", "", "member web-0-x7k2p does not announce it"},
		{"format", "3", "2", "field duties: a table of format 2 has no duties"},
		{"runs", "200-255 - 39", "200-256 - 39", "must tile the slots 0 to 255"},
	} {
		text := table.Encode(withDuties())
		if !strings.Contains(text[test.field], test.old) {
			t.Fatalf("no %q in field %s:\n%s", test.old, test.field, text[test.field])
		}
		text[test.field] = strings.ReplaceAll(text[test.field], test.old, test.new)
		if test.field == "able" && test.new == "" {
			text["able"] = "258 *\n"
		}
		_, err := table.Decode(text)
		require.ErrorSays(t, err, test.want)
	}
	text := table.Encode(sample())
	text["older"] = "soon"
	_, err := table.Decode(text)
	require.ErrorSays(t, err, "field older")
}
