package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/dispatch"
)

// Ask is dispatch.Ask, for what a worker sends.
type Ask struct {
	Worker string
	Kinds  []string
	Max    int
	// Wait is how long to wait for the first key, an hour at most.
	Wait   time.Duration
	Length time.Duration
	Affine bool
}

// longestWait bounds Ask.Wait.
const longestWait = time.Hour

// ErrOver is the error of asks once the dispatcher has ended.
var ErrOver = errors.New("this dispatcher has ended")

// Take waits for keys. It returns none if there were none in time, or ctx ended. A take lasts until Now is its
// deadline. The error is ErrOver, or about the ask.
func (d *Dispatcher) Take(ctx context.Context, a Ask) ([]dispatch.Take, error) {
	answers := make(chan dispatch.Given, 1)
	id, err := d.ask(a, false, func(g dispatch.Given) { answers <- g })
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
	if d.cancel(id) {
		return nil, err
	}
	g := <-answers // it is on its way
	return g.Takes, nil
}

func (d *Dispatcher) ask(a Ask, stream bool, answer func(dispatch.Given)) (id uint64, err error) {
	d.mu.Lock()
	d.last++
	id = d.last
	now := d.parts.Late()
	err = d.queue.Ask(now, dispatch.Ask{
		ID: id, Worker: a.Worker, Kinds: a.Kinds, Max: a.Max, Until: now + min(a.Wait, longestWait), Length: a.Length,
		Affine: a.Affine, Stream: stream,
	})
	if err == nil {
		d.asks[id] = answer
	}
	d.mu.Unlock()
	d.step()
	return id, err
}

// cancel ends an ask. It returns false if the ask has been answered.
func (d *Dispatcher) cancel(id uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, waits := d.asks[id]
	d.queue.Cancel(d.parts.Late(), id)
	delete(d.asks, id)
	return waits
}

// Now is the clock of deadlines.
func (d *Dispatcher) Now() time.Duration { return d.parts.Late() }

// Done ends a take.
func (d *Dispatcher) Done(id uint64, worker string, r dispatch.Result) error {
	defer d.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Done(d.parts.Late(), id, worker, r)
}

// Release ends a take as if it had not been.
func (d *Dispatcher) Release(id uint64, worker string) error {
	defer d.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Release(d.parts.Late(), id, worker)
}

// Extend moves the deadline of a take.
func (d *Dispatcher) Extend(id uint64, worker string, length time.Duration) (dispatch.Extended, error) {
	defer d.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Extend(d.parts.Late(), id, worker, length)
}

// Stats describe the queue.
func (d *Dispatcher) Stats() ([]dispatch.Stats, dispatch.Counts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Stats(), d.queue.Counts()
}
