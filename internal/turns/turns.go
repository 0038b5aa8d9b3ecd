// Package turns has the items of a work queue take turns by their tenants, so that many items of one do not delay the
// first one of another. It is a data structure: no clock, no goroutine. It is not safe for concurrent use.
package turns

import (
	"container/list"
	"reflect"
	"slices"
	"strings"
)

// Turns holds items that wait for a worker, and says whose turn it is. Create it with New.
//
// Items of a higher priority come before others, but for one turn in every, which is one of the lower priorities'.
// Within a priority it is a tenant's turn that has fewer items in work than its weight, and has waited longest for it;
// if there is none, the turn of one that has fewest in work for its weight. A tenant that has as many in work is passed
// over so often at most (see patience), so that it does not wait as long as its longest item works. A tenant takes as
// many items in a row as its weight, by deficit round robin with items of equal cost (Shreedhar and Varghese, 1996).
// Its items come by the numbers that they were pushed with, and have the tenant that they had then.
type Turns[T comparable] struct {
	tenantOf func(T) string
	weightOf func(tenant string) int
	every    int

	where map[T][]place // in the order in which they come
	len   int
	bands []*band // by falling priority; none is empty
	// inWork has the tenants of an item that is in work, once for each time that it is, and working how many a tenant
	// has there.
	inWork  map[T][]string
	working map[string]int
	// passed is how many turns of the first band went by while others had items, and next which of these is next.
	passed, next int
	tenants      map[string]*Tenant
}

// Tenant is what waits and works of a tenant.
type Tenant struct {
	Name             string
	Waiting, Working int
}

// place is where an item waits.
type place struct {
	band   *band
	tenant *tenant
	item   *list.Element
}

// band has the items of a priority.
type band struct {
	priority int
	tenants  map[string]*tenant
	turns    list.List // of *tenant, whose turn is next first
}

// tenant has the items of a tenant in a band.
type tenant struct {
	name   string
	turn   *list.Element
	items  list.List // of entries, by rising number
	credit int       // items that it may still take in a row
	passed int       // how often it was passed over
}

// patience is how often a tenant is passed over that has n items in work, for a weight of w: 10 times if it has one,
// 100 times if it has two. So a tenant whose items never end gets another worker now and then, and not all of them
// soon.
func patience(n, w int) int {
	most := 1
	for range min(n/w, 6) {
		most *= 10
	}
	return most
}

// entry is an item and its number.
type entry[T comparable] struct {
	item   T
	number uint64
}

func (e entry[T]) order() uint64 { return e.number }

// insert puts an entry where its number belongs: most often at the end, or near one of the ends.
func (t *tenant) insert(e interface{ order() uint64 }) *list.Element {
	number := func(at *list.Element) uint64 { return at.Value.(interface{ order() uint64 }).order() }
	for back, front := t.items.Back(), t.items.Front(); back != nil; back, front = back.Prev(), front.Next() {
		if number(back) <= e.order() {
			return t.items.InsertAfter(e, back)
		}
		if number(front) > e.order() {
			return t.items.InsertBefore(e, front)
		}
	}
	return t.items.PushFront(e)
}

// New returns Turns without items. tenantOf is that of an item: nil takes the namespace, of items with a field of that
// name and of strings of the form namespace/name; "" for others. weightOf is that of a tenant: nil, and what is below
// 1, count as 1. With every below 2 lower priorities get no turns of their own.
func New[T comparable](tenantOf func(T) string, weightOf func(tenant string) int, every int) *Turns[T] {
	if tenantOf == nil {
		tenantOf = namespaceOf[T]
	}
	weight := func(tenant string) int {
		if weightOf == nil {
			return 1
		}
		return max(1, weightOf(tenant))
	}
	return &Turns[T]{
		tenantOf: tenantOf, weightOf: weight, every: every, where: map[T][]place{}, inWork: map[T][]string{},
		working: map[string]int{}, tenants: map[string]*Tenant{},
	}
}

// namespaceOf is the tenant of an item unless the program says something else.
func namespaceOf[T comparable](item T) string {
	v := reflect.ValueOf(item)
	switch v.Kind() { //nolint:exhaustive // others have no namespace
	case reflect.String:
		if namespace, _, found := strings.Cut(v.String(), "/"); found {
			return namespace
		}
	case reflect.Struct:
		if f := v.FieldByName("Namespace"); f.IsValid() && f.Kind() == reflect.String {
			return f.String()
		}
	}
	return ""
}

// TenantOf returns an item's tenant.
func (q *Turns[T]) TenantOf(item T) string { return q.tenantOf(item) }

// Len is how many items wait.
func (q *Turns[T]) Len() int { return q.len }

// Push has an item wait, after those of its tenant and priority that have no higher number. An item may wait twice.
func (q *Turns[T]) Push(item T, priority int, number uint64) {
	name := q.tenantOf(item)
	b := q.band(priority)
	t := b.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		b.tenants[name] = t
		t.turn = b.turns.PushBack(t)
	}
	q.where[item] = append(q.where[item], place{b, t, t.insert(entry[T]{item, number})})
	q.len++
	q.count(name).Waiting++
}

// Raise gives an item that waits a higher priority, and another number. It says whether it did.
func (q *Turns[T]) Raise(item T, priority int, number uint64) bool {
	at := q.where[item]
	if len(at) == 0 || priority <= at[0].band.priority {
		return false
	}
	q.take(item)
	q.Push(item, priority, number)
	return true
}

// Pop returns the item whose turn it is, and its priority. Some item must wait. It is in work until Done.
func (q *Turns[T]) Pop() (item T, priority int) {
	b := q.turn()
	t := b.turn(q.working, q.weightOf)
	item = t.items.Front().Value.(entry[T]).item
	if t.credit == 0 {
		t.credit = q.weightOf(t.name)
	}
	if t.credit--; t.credit == 0 {
		b.turns.MoveToBack(t.turn)
	} else {
		b.turns.MoveToFront(t.turn)
	}
	q.take(item)
	q.inWork[item] = append(q.inWork[item], t.name)
	q.working[t.name]++
	q.count(t.name).Working++
	return item, b.priority
}

// Done says that an item is in work no more. One that is not is no matter.
func (q *Turns[T]) Done(item T) {
	tenants := q.inWork[item]
	if len(tenants) == 0 {
		return
	}
	name := tenants[0]
	if q.inWork[item] = tenants[1:]; len(tenants) == 1 {
		delete(q.inWork, item)
	}
	if q.working[name]--; q.working[name] == 0 {
		delete(q.working, name)
	}
	q.count(name).Working--
	q.forget(name)
}

// Tenants returns those that have items, in any order.
func (q *Turns[T]) Tenants() []Tenant {
	out := make([]Tenant, 0, len(q.tenants))
	for _, t := range q.tenants {
		out = append(out, *t)
	}
	return out
}

func (q *Turns[T]) count(name string) *Tenant {
	t := q.tenants[name]
	if t == nil {
		t = &Tenant{Name: name}
		q.tenants[name] = t
	}
	return t
}

func (q *Turns[T]) forget(name string) {
	if t := q.tenants[name]; t.Waiting == 0 && t.Working == 0 {
		delete(q.tenants, name)
	}
}

// band returns that of a priority, which may be new.
func (q *Turns[T]) band(priority int) *band {
	i, found := slices.BinarySearchFunc(q.bands, priority, func(b *band, p int) int { return p - b.priority })
	if !found {
		q.bands = slices.Insert(q.bands, i, &band{priority: priority, tenants: map[string]*tenant{}})
	}
	return q.bands[i]
}

// turn returns the band whose turn it is.
func (q *Turns[T]) turn() *band {
	if len(q.bands) == 1 {
		q.passed = 0
		return q.bands[0]
	}
	if q.passed++; q.every < 2 || q.passed < q.every {
		return q.bands[0]
	}
	q.passed = 0
	q.next++
	return q.bands[1+q.next%(len(q.bands)-1)]
}

// turn returns the tenant whose turn it is. Few are looked at: each that is passed over has items in work.
func (b *band) turn(working map[string]int, weightOf func(string) int) *tenant {
	var best *tenant
	for e := b.turns.Front(); e != nil; e = e.Next() {
		t := e.Value.(*tenant)
		n, w := working[t.name], weightOf(t.name)
		if n < w || t.passed >= patience(n, w) {
			t.passed = 0
			return t
		}
		t.passed++
		if best == nil || n*weightOf(best.name) < working[best.name]*w {
			best = t
		}
	}
	best.passed = 0
	return best
}

// take takes an item out, where it is first.
func (q *Turns[T]) take(item T) {
	at := q.where[item][0]
	if q.where[item] = q.where[item][1:]; len(q.where[item]) == 0 {
		delete(q.where, item)
	}
	q.len--
	at.tenant.items.Remove(at.item)
	q.count(at.tenant.name).Waiting--
	q.forget(at.tenant.name)
	if at.tenant.items.Len() > 0 {
		return
	}
	at.band.turns.Remove(at.tenant.turn)
	delete(at.band.tenants, at.tenant.name)
	if len(at.band.tenants) == 0 {
		i := slices.Index(q.bands, at.band)
		q.bands = slices.Delete(q.bands, i, i+1)
	}
}
