package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
)

// Ask is a worker's request for keys, like queue.Ask.
type Ask struct {
	Worker string
	Kinds  []string
	Max    int
	// Wait is how long to wait for the first key, at most an hour.
	Wait   time.Duration
	Length time.Duration
	Affine bool
	// Stream makes keys come until Cancel, as many as there is credit for: Max, plus what More adds.
	Stream bool
}

// asked is an Ask in progress.
type asked struct {
	answer func(queue.Given)
	stream bool
}

// longestWait bounds Ask.Wait.
const longestWait = time.Hour

// ErrOver is returned for asks after the dispatcher has ended.
var ErrOver = errors.New("this dispatcher has ended")

// Take waits for keys. It returns none if none were ready in time, or ctx ended. A take's deadline is a time by Now.
// The error is ErrOver, or about the ask.
func (d *Dispatcher) Take(ctx context.Context, a Ask) ([]queue.Take, error) {
	answers := make(chan queue.Given, 1)
	id, err := d.Ask(a, func(g queue.Given) { answers <- g })
	if err != nil {
		return nil, err
	}
	select {
	case g := <-answers:
		return g.Takes, nil
	case <-d.over:
		err = ErrOver
	case <-ctx.Done():
	}
	if d.Cancel(id) {
		return nil, err
	}
	g := <-answers // it is about to come
	return g.Takes, nil
}

// Ask asks for keys, and returns a number for Cancel, Claim and More. It calls answer once for a poll, and whenever
// there are keys for a stream. The calls come from any goroutine, possibly before Ask returns, and must not block.
func (d *Dispatcher) Ask(a Ask, answer func(queue.Given)) (id uint64, err error) {
	d.mu.Lock()
	d.last++
	id = d.last
	now := d.now()
	err = d.queue.Ask(now, queue.Ask{
		ID: id, Worker: a.Worker, Kinds: a.Kinds, Max: a.Max, Until: now + min(a.Wait, longestWait), Length: a.Length,
		Affine: a.Affine, Stream: a.Stream,
	})
	if err == nil {
		d.asks[id] = asked{answer, a.Stream}
	}
	d.mu.Unlock()
	d.step()
	return id, err
}

// Cancel ends an Ask. It returns false if the Ask had ended: a poll has been answered, or is about to be.
func (d *Dispatcher) Cancel(id uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, waits := d.asks[id]
	d.queue.Cancel(d.now(), id)
	delete(d.asks, id)
	return waits
}

// Claim reserves room for up to n keys that an Ask gets from another dispatcher, and returns for how many. A poll ends
// with that, without an answer.
func (d *Dispatcher) Claim(id uint64, n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n = d.queue.Claim(d.now(), id, n); n > 0 && !d.asks[id].stream {
		delete(d.asks, id)
	}
	return n
}

// More gives a stream credit for n more keys.
func (d *Dispatcher) More(id uint64, n int) error {
	defer d.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.More(d.now(), id, n)
}

// Over is closed when Run has returned.
func (d *Dispatcher) Over() <-chan struct{} { return d.over }

// hands reports whether keys may be handed out: other dispatchers can reach this one.
func (d *Dispatcher) hands() bool { return d.o.Address == "" || d.parts.Reported() }

// Now is the clock of deadlines.
func (d *Dispatcher) Now() time.Duration { return d.parts.Late() }

// Done ends a take.
func (d *Dispatcher) Done(id uint64, worker string, r queue.Result) error {
	defer d.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	t, underWay := d.queue.Take(id)
	err := d.queue.Done(now, id, worker, r)
	if err == nil && underWay && d.o.Done != nil {
		d.o.Done(t.Key.Kind, now-t.Begun)
	}
	return err
}

// Release ends a take as if it had not happened.
func (d *Dispatcher) Release(id uint64, worker string) error {
	defer d.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Release(d.now(), id, worker)
}

// Extend moves the deadline of a take.
func (d *Dispatcher) Extend(id uint64, worker string, length time.Duration) (queue.Extended, error) {
	defer d.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.queue.Extend(d.now(), id, worker, length)
	d.toLate(&e.Deadline)
	e.Deadline = min(e.Deadline, d.clock.deadline) // the clock may have jumped since the take began
	return e, err
}

// Stats returns the state of the queue.
func (d *Dispatcher) Stats() ([]queue.Stats, queue.Counts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now()
	stats := d.queue.Stats()
	for i := range stats {
		if stats[i].Ready > 0 {
			d.toLate(&stats[i].Oldest)
		}
		if stats[i].OldestChanged > 0 {
			d.toLate(&stats[i].OldestChanged)
		}
		if stats[i].Failing > 0 {
			d.toLate(&stats[i].FailingSince)
		}
	}
	return stats, d.queue.Counts()
}

// Failing returns failing keys of some kinds, and how many there are in all.
func (d *Dispatcher) Failing(kinds []string, most int) ([]queue.Failing, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys, all := d.queue.Failing(d.now(), kinds, most)
	for i := range keys {
		d.toLate(&keys[i].Since, &keys[i].Last, &keys[i].Next)
	}
	return keys, all
}
