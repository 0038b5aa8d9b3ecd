// Package turns lets the tenants of a work queue take turns, so that many items of one tenant do not delay the first
// item of another. It is a data structure without clock or goroutine. It is not safe for concurrent use.
package turns

import (
	"container/list"
	"reflect"
	"slices"
	"strings"
)

// Turns holds items that wait for a worker and decides which comes next. Create it with New.
//
// Items of a higher priority come first, except that one turn in every goes to lower priorities.
// Within a priority, the next tenant is the one that has waited longest among those with fewer items in work than their
// weight. If there is none, it is the one with the fewest items in work relative to its weight. A tenant with more
// items in work is passed over only a limited number of times (see patience), so that it need not wait until its
// longest item ends. A tenant takes as many items in a row as its weight, by deficit round robin with items of equal
// cost (Shreedhar and Varghese, 1996). Its items come in the order of their numbers. An item keeps the tenant that it
// had when it was pushed.
type Turns[T comparable] struct {
	tenantOf func(T) string
	weightOf func(tenant string) int
	every    int

	where map[T][]place // in the order in which they come
	len   int
	bands []*band // by falling priority; none is empty
	// inWork maps each item in work to its tenants, one entry for each time it is in work. working counts the items in
	// work of each tenant.
	inWork  map[T][]string
	working map[string]int
	// passed counts consecutive turns of the first band while others had items. next selects the next of the others.
	passed, next int
	tenants      map[string]*Tenant
}

// Tenant counts a tenant's items that wait and that are in work.
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

// band holds the items of a priority.
type band struct {
	priority int
	tenants  map[string]*tenant
	turns    list.List // of *tenant, the next one first
}

// tenant holds the items of a tenant in a band.
type tenant struct {
	name   string
	turn   *list.Element
	items  list.List // of entries, by rising number
	credit int       // items that it may still take in a row
	passed int       // how often it was passed over
}

// patience returns how often a tenant with n items in work and weight w is passed over: 10 times if n/w is 1, 100 times
// if it is 2. So a tenant whose items never end gets another worker from time to time, but does not soon occupy all.
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

// insert puts an entry in order of its number, which usually is at or near one of the ends.
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

// New returns Turns without items. tenantOf returns an item's tenant. If nil, the tenant is the value of the item's
// field Namespace, or the namespace of a string of the form namespace/name, or "". weightOf returns a tenant's weight.
// If nil or below 1, the weight is 1. If every is below 2, lower priorities get no turns of their own.
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

// namespaceOf is the default of tenantOf.
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

// Len returns how many items wait.
func (q *Turns[T]) Len() int { return q.len }

// Push adds an item, after the items of its tenant and priority with the same or a lower number. An item may wait
// twice.
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

// Raise gives a waiting item a higher priority and another number. It returns false if it changed nothing.
func (q *Turns[T]) Raise(item T, priority int, number uint64) bool {
	at := q.where[item]
	if len(at) == 0 || priority <= at[0].band.priority {
		return false
	}
	q.take(item)
	q.Push(item, priority, number)
	return true
}

// Pop returns the next item and its priority. At least one item must wait. The item is in work until Done.
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

// Done records that an item is no longer in work. Items that are not in work are ignored.
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

// Tenants returns the tenants that have items, in any order.
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

// band returns the band of a priority, and creates it if needed.
func (q *Turns[T]) band(priority int) *band {
	i, found := slices.BinarySearchFunc(q.bands, priority, func(b *band, p int) int { return p - b.priority })
	if !found {
		q.bands = slices.Insert(q.bands, i, &band{priority: priority, tenants: map[string]*tenant{}})
	}
	return q.bands[i]
}

// turn returns the band that is next.
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

// turn returns the tenant that is next. The loop is short, since each tenant it passes over has items in work.
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

// take removes the first occurrence of an item.
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
