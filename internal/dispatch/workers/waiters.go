package workers

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// group identifies asks that wait at other dispatchers together, because they ask alike.
type group struct {
	user, kinds string
	length      time.Duration
	// worker is empty unless the ask is affine. Affine asks wait by their worker's name.
	worker string
}

// maxGroups is how many groups of each user are forwarded separately. Further asks, which differ in length or are
// affine, wait as one group.
const maxGroups = 200

// waiter waits for keys from any dispatcher.
type waiter struct {
	ask  uint64 // at this dispatcher
	user string
	// want returns how many keys it can take now.
	want  func() int
	group group // set by wait
	// deliver gives it keys, after Claim. It does not block.
	deliver func([]given)
}

// waiters are the waiters of a group, first come first.
type waiters struct {
	ask  keeper.Ask
	user string
	all  []*waiter
	// at are the processes that are being polled for the group.
	at map[Process]bool
}

// wants returns how many keys the group can take.
func (g *waiters) wants() int {
	n := 0
	for _, w := range g.all {
		n += w.want()
	}
	return min(n, wire.MaxKeys)
}

// wait lets a waiter get keys from other dispatchers until leave is called.
func (f *Front) wait(a keeper.Ask, w *waiter) (leave func()) {
	a.Length = a.Length.Round(time.Second)
	key := group{user: w.user, kinds: strings.Join(a.Kinds, ","), length: a.Length}
	if a.Affine {
		key.worker = a.Worker
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[key]
	if g == nil && f.sizes[w.user] >= maxGroups {
		// There are too many groups to forward each.
		key = group{user: w.user, kinds: key.kinds}
		a.Length, a.Affine = 0, false
		g = f.groups[key]
	}
	if g == nil {
		f.sizes[w.user]++
		g = &waiters{ask: a, user: w.user, at: map[Process]bool{}}
		f.groups[key] = g
	}
	w.group = key
	g.all = append(g.all, w)
	f.send(key, g)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		g.all = slices.DeleteFunc(g.all, func(x *waiter) bool { return x == w })
		f.tidy(key, g)
	}
}

// tidy removes a group that has no waiters and no polls. f.mu is held.
func (f *Front) tidy(key group, g *waiters) {
	if len(g.all) == 0 && len(g.at) == 0 && f.groups[key] == g {
		delete(f.groups, key)
		if f.sizes[key.user]--; f.sizes[key.user] == 0 {
			delete(f.sizes, key.user)
		}
	}
}

// found is called when other dispatchers have been found.
func (f *Front) found() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, g := range f.groups {
		f.send(key, g)
	}
}

// credited is called when a waiter can take more keys than before.
func (f *Front) credited(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.groups[w.group]; g != nil {
		f.send(w.group, g)
	}
}

// send polls each of the other dispatchers for a group. f.mu is held.
func (f *Front) send(key group, g *waiters) {
	if g.wants() == 0 || f.life.Err() != nil {
		return
	}
	for _, p := range f.peers.all() {
		if g.at[p] {
			continue
		}
		g.at[p] = true
		f.running.Go(func() { f.waitAt(key, g, p) })
	}
}

// turn is how long one poll of another dispatcher waits. Polls are not aborted, because their answers could be lost. So
// a poll may continue this long after its waiters have gone. Its keys are then put back.
const turn = 2 * time.Second

// waitAt polls another dispatcher for a group as long as the group has waiters.
func (f *Front) waitAt(key group, g *waiters, p Process) {
	delay := 100 * time.Millisecond
	for {
		f.mu.Lock()
		n := g.wants()
		if n == 0 || f.life.Err() != nil || !f.peers.has(p) {
			delete(g.at, p)
			f.tidy(key, g)
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		a := g.ask
		a.Max = portion(n, len(f.peers.all()))
		begun := f.d.Now()
		takes, err := f.peers.take(context.WithoutCancel(f.life), p, g.user, a, turn)
		if err != nil {
			f.o.Logger.V(1).Info("Another dispatcher does not answer a poll", "dispatcher", p.String(), "error", err.Error())
			_ = await.Sleep(f.life, delay)
			delay = min(2*delay, 5*time.Second)
			continue
		}
		delay = 100 * time.Millisecond
		if len(takes) == 0 && f.d.Now()-begun < turn/2 { // it ends
			_ = await.Sleep(f.life, delay)
		}
		f.putBack(f.share(g, takes), g.user)
	}
}

// share gives keys to waiters, and returns the rest.
func (f *Front) share(g *waiters, takes []given) []given {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range g.all {
		if len(takes) == 0 {
			break
		}
		if w.want() == 0 {
			continue
		}
		if n := f.d.Claim(w.ask, len(takes)); n > 0 {
			w.deliver(takes[:n:n])
			takes = takes[n:]
		}
	}
	return takes
}
