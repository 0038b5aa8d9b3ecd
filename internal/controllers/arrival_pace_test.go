package controllers

import (
	"testing"
	"time"
)

// Arrivals become more while nothing waits, and half as many, once each time, when something does.
func TestPace(t *testing.T) {
	p, now := newPace(), time.Duration(0)
	tick := func(n int, late time.Duration) {
		for range n {
			now += arrivalPeriod
			p.tick(now, late)
		}
	}
	if got := p.take(100); got != paceStart {
		t.Fatalf("%d at first, want %d", got, paceStart)
	}
	if got := p.take(100); got != 0 {
		t.Errorf("%d more, although none is done", got)
	}
	p.done(1)
	if got := p.take(100); got != 1 {
		t.Errorf("%d more after one is done, want 1", got)
	}
	for range 100 { // half a second
		tick(1, 0)
		p.take(100)
	}
	if p.underway < 40 || p.underway > 60 {
		t.Errorf("%d after half a second in which nothing waited, want about 50", p.underway)
	}
	before := p.limit
	tick(2, lateTick+1) // the second comes too soon for another cut
	if p.limit != before/2 {
		t.Errorf("a late tick made %v of %v, want half", p.limit, before)
	}
	tick(1000, lateTick+1)
	if p.limit != paceLeast {
		t.Errorf("%v while all ticks are late, want %d", p.limit, paceLeast)
	}
	p.done(p.underway)
	if got := p.take(100); got != paceLeast {
		t.Errorf("%d while all ticks are late, want %d: arrivals never stop", got, paceLeast)
	}
	for range 10 {
		tick(1, 0)
		p.take(100)
	}
	grown := p.limit
	p.waited(func() time.Duration { return now }, longWait)
	if p.limit != grown {
		t.Errorf("a change that waited for %v made %v of %v", longWait, p.limit, grown)
	}
	p.waited(func() time.Duration { return now + cutPeriod }, longWait+1)
	if p.limit != grown/2 {
		t.Errorf("a change that waited for longer made %v of %v, want half", p.limit, grown)
	}
	p.done(p.underway)
	limit := p.limit
	if tick(100, 0); p.limit != limit {
		t.Errorf("%v of %v after half a second without arrivals: what is not used does not grow", p.limit, limit)
	}
	// After a long time the first tick counts as one.
	p.take(100)
	now += time.Hour
	p.tick(now, 0)
	if p.limit > limit+paceGrowth {
		t.Errorf("%v after an hour without arrivals, was %v", p.limit, limit)
	}
}

// Several that trickle at the same time do not raise the limit faster than one.
func TestPaceOfSeveral(t *testing.T) {
	one, several := newPace(), newPace()
	for i := range time.Duration(100) {
		now := (i + 1) * arrivalPeriod
		one.take(1000)
		several.take(1000)
		one.tick(now, 0)
		for k := range time.Duration(5) {
			several.tick(now+k*arrivalPeriod/5, 0)
		}
	}
	if diff := several.limit - one.limit; diff < -1 || diff > 1 {
		t.Errorf("%v with five, %v with one", several.limit, one.limit)
	}
}
