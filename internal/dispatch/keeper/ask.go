package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
)

// Ask is queue.Ask, for what a worker sends.
type Ask struct {
	Worker string
	Kinds  []string
	Max    int
	// Wait is how long to wait for the first key, an hour at most.
	Wait   time.Duration
	Length time.Duration
	Affine bool
	// Stream has keys come until Cancel, and as many as there is credit for: Max, and what More adds.
	Stream bool
}

// asked is an Ask under way.
type asked struct {
	answer func(queue.Given)
	stream bool
}

// longestWait bounds Ask.Wait.
const longestWait = time.Hour

// ErrOver is the error of asks once the dispatcher has ended.
var ErrOver = errors.New("this dispatcher has ended")

// Take waits for keys. It returns none if there were none in time, or ctx ended. A take lasts until Now is its
// deadline. The error is ErrOver, or about the ask.
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
	g := <-answers // it is on its way
	return g.Takes, nil
}

// Ask asks for keys, and returns a number for Cancel, Claim and More. answer is called from any goroutine, perhaps
// before Ask returns, and must not block: once for a poll, and whenever there are keys for a stream.
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

// Cancel ends an Ask. It returns false if it has ended already: a poll has been answered, or soon is.
func (d *Dispatcher) Cancel(id uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, waits := d.asks[id]
	d.queue.Cancel(d.now(), id)
	delete(d.asks, id)
	return waits
}

// Claim makes room for n keys that an Ask gets from another dispatcher, and returns for how many there is room. A poll
// ends with that, without an answer.
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

// hands says whether keys may be handed out: other dispatchers know how to reach this one.
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

// Release ends a take as if it had not been.
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
	e.Deadline = min(e.Deadline, d.clock.deadline) // it may have jumped since the take began
	return e, err
}

// Stats describe the queue.
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

// Failing returns keys of some kinds that fail, and how many there are.
func (d *Dispatcher) Failing(kinds []string, most int) ([]queue.Failing, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys, all := d.queue.Failing(d.now(), kinds, most)
	for i := range keys {
		d.toLate(&keys[i].Since, &keys[i].Last, &keys[i].Next)
	}
	return keys, all
}
