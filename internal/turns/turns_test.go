package turns_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/turns"
)

// newTurns is of items such as "a1", of tenant a.
func newTurns(every int, weights map[string]int) *turns.Turns[string] {
	return turns.New(func(item string) string { return item[:1] }, func(name string) int { return max(1, weights[name]) }, every)
}

func push(q *turns.Turns[string], priority int, items string) {
	for n, item := range strings.Fields(items) {
		q.Push(item, priority, uint64(n))
	}
}

// Items of a tenant come by their numbers, whenever they were pushed, and as often as they were.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newTurns(0, nil)
		var want []string
		for n, number := range rapid.SliceOfN(rapid.IntRange(0, 20), 1, 20).Draw(t, "numbers") {
			q.Push(fmt.Sprintf("a%02d.%02d", number, n), 0, uint64(number))
			want = append(want, fmt.Sprintf("a%02d.%02d", number, n))
		}
		slices.Sort(want)
		if got := pop(q, q.Len(), true); got != strings.Join(want, " ") {
			t.Fatalf("they come as %s", got)
		}
	})
	q := newTurns(0, nil)
	push(q, 0, "a1 a1 a2 a1")
	if got := pop(q, 4, false); got != "a1 a1 a2 a1" {
		t.Errorf("one that waits three times: %s", got)
	}
	q.Done("a1")
	q.Done("a1")
	if got := q.Tenants(); len(got) != 1 || got[0].Working != 2 {
		t.Errorf("%v are left, want two in work", got)
	}
}

// pop takes n items, each of which is done at once if done.
func pop(q *turns.Turns[string], n int, done bool) string {
	var out []string
	for range n {
		item, _ := q.Pop()
		out = append(out, item)
		if done {
			q.Done(item)
		}
	}
	return strings.Join(out, " ")
}

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		why     string
		weights map[string]int
		items   string
		done    bool
		want    string
	}{
		{"one tenant: in the order in which they came", nil, "a1 a2 a3", true, "a1 a2 a3"},
		{"tenants take turns", nil, "a1 a2 a3 a4 b1 c1 c2", true, "a1 b1 c1 a2 c2 a3 a4"},
		{"by weight", map[string]int{"a": 2}, "a1 a2 a3 a4 a5 b1 b2 b3", true, "a1 a2 b1 a3 a4 b2 a5 b3"},
		{"who has fewest in work is first", nil, "a1 a2 a3 a4 b1 b2", false, "a1 b1 a2 b2 a3 a4"},
		{"for its weight", map[string]int{"a": 2}, "a1 a2 a3 a4 a5 a6 b1 b2 b3", false, "a1 a2 b1 a3 b2 a4 b3 a5 a6"},
	} {
		q := newTurns(0, c.weights)
		push(q, 0, c.items)
		if got := pop(q, q.Len(), c.done); got != c.want {
			t.Errorf("%s: of %s come %s, want %s", c.why, c.items, got, c.want)
		}
	}
}

// A tenant whose items take long does not get the workers that another one's leave.
func TestLongItemsOfATenant(t *testing.T) {
	q := newTurns(0, nil)
	push(q, 0, "a1 a2 a3 a4 a5 a6")
	if got := pop(q, 3, false); got != "a1 a2 a3" {
		t.Fatalf("%s, want a's: nobody else waits", got)
	}
	push(q, 0, "b1 b2 b3")
	q.Done("a1")
	if got := pop(q, 2, true); got != "b1 b2" {
		t.Errorf("%s, want b's, since a has two in work", got)
	}
}

// A tenant with an item that never ends has turns beside tenants that always have items. If none of its items ends, it
// gets few workers.
func TestItemsThatNeverEnd(t *testing.T) {
	for _, c := range []struct{ workers, busy, waits int }{{2, 1, 11}, {3, 2, 11}, {10, 9, 11}, {10, 1, 3}} {
		q, number, stuck := newTurns(0, nil), uint64(0), 1
		push := func(item string) { number++; q.Push(item, 0, number) }
		push("a0")
		q.Pop()
		for i := range 10 {
			push(fmt.Sprint("a", 1+i))
		}
		var work []string
		came := 0 // the turn in which a's second item came
		for turn := 1; turn <= 2000 && stuck < c.workers; turn++ {
			for b := range c.busy {
				push(fmt.Sprint(string(rune('b'+b)), turn))
			}
			item, _ := q.Pop()
			if item[0] != 'a' {
				work = append(work, item)
			} else if stuck++; came == 0 {
				came = turn
			}
			if len(work)+stuck >= c.workers && len(work) > 0 {
				q.Done(work[0])
				work = work[1:]
			}
		}
		if came == 0 || came > c.waits || stuck < min(3, c.workers) || stuck > 5 {
			t.Errorf("%d workers, %d busy tenants: the second item came in turn %d, want %d at most; %d are stuck", c.workers,
				c.busy, came, c.waits, stuck)
		}
	}
}

// The tenant of an item changes while it is in work.
func TestATenantChanges(t *testing.T) {
	name := "old"
	q := turns.New(func(string) string { return name }, nil, 0)
	q.Push("x", 0, 1)
	q.Pop()
	name = "new"
	q.Done("x")
	if left := q.Tenants(); len(left) > 0 {
		t.Errorf("nothing waits and nothing is in work, but %+v", left)
	}
}

func TestPriorities(t *testing.T) {
	q := newTurns(0, nil)
	push(q, -1, "a1 b1")
	push(q, 5, "c1 c2")
	push(q, 0, "d1")
	if got := pop(q, 5, true); got != "c1 c2 d1 a1 b1" {
		t.Errorf("%s, want them by priority", got)
	}
	push(q, 0, "a1 a2 b1")
	if !q.Raise("a2", 1, 9) || q.Raise("a2", 1, 9) || q.Raise("a2", 0, 9) || q.Raise("z", 1, 9) {
		t.Error("an item that waits at a lower priority is raised, and no other")
	}
	if item, priority := q.Pop(); item != "a2" || priority != 1 {
		t.Errorf("%s of priority %d, want a2 of 1", item, priority)
	}
}

// Of ten turns one is a lower priority's, and each of these gets some.
func TestLowPrioritiesGetTurns(t *testing.T) {
	q := newTurns(10, nil)
	got := map[int]int{}
	for n := range 100 {
		q.Push(fmt.Sprint("h", n), 0, uint64(n))
		if n < 20 {
			q.Push(fmt.Sprint("l", n), -100, uint64(n))
			q.Push(fmt.Sprint("m", n), -50, uint64(n))
		}
	}
	for range 100 {
		item, priority := q.Pop()
		q.Done(item)
		got[priority]++
	}
	if got[0] != 90 || got[-50] != 5 || got[-100] != 5 {
		t.Errorf("turns by priority: %v, want 90, 5 and 5", got)
	}
}

// Whatever is pushed, raised and popped: each item comes once, and what Turns counts is right.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newTurns(rapid.IntRange(0, 4).Draw(t, "every"), map[string]int{"a": 3})
		waits, works := map[string]bool{}, map[string]bool{}
		item := func() string {
			return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant") + rapid.StringMatching("[0-9]").Draw(t, "item")
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				one := item()
				if waits[one] || works[one] {
					t.Skip("it is there")
				}
				waits[one] = true
				q.Push(one, rapid.IntRange(-2, 2).Draw(t, "priority"), rapid.Uint64Range(0, 9).Draw(t, "number"))
			},
			"raise": func(t *rapid.T) {
				if one := item(); q.Raise(one, rapid.IntRange(-2, 2).Draw(t, "priority"), 5) && !waits[one] {
					t.Fatalf("%s was raised, and does not wait", one)
				}
			},
			"pop": func(t *rapid.T) {
				if len(waits) == 0 {
					t.Skip("none waits")
				}
				one, _ := q.Pop()
				if !waits[one] {
					t.Fatalf("%s comes, and did not wait", one)
				}
				delete(waits, one)
				works[one] = true
			},
			"done": func(*rapid.T) {
				one := item()
				q.Done(one)
				delete(works, one)
			},
			"": func(t *rapid.T) {
				if q.Len() != len(waits) {
					t.Fatalf("%d wait, want %d", q.Len(), len(waits))
				}
				want := map[string]turns.Tenant{}
				for one := range waits {
					is := want[one[:1]]
					want[one[:1]] = turns.Tenant{Name: one[:1], Waiting: is.Waiting + 1, Working: is.Working}
				}
				for one := range works {
					is := want[one[:1]]
					want[one[:1]] = turns.Tenant{Name: one[:1], Waiting: is.Waiting, Working: is.Working + 1}
				}
				got := q.Tenants()
				if len(got) != len(want) || slices.ContainsFunc(got, func(is turns.Tenant) bool { return want[is.Name] != is }) {
					t.Fatalf("tenants %v, want %v", got, want)
				}
			},
		})
	})
}

func BenchmarkTurns(b *testing.B) {
	q := turns.New(func(n int) string { return fmt.Sprint(n % 1000) }, func(string) int { return 1 }, 10)
	for n := range 100_000 {
		q.Push(n, 0, uint64(n))
	}
	number := uint64(100_000)
	for b.Loop() {
		n, _ := q.Pop()
		q.Done(n)
		number++
		q.Push(n, 0, number)
	}
}
