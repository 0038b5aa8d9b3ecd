package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// Handler works on a key. Run calls it in a goroutine for each key, up to Worker.Concurrency at the same time, but
// never twice at the same time for one key. It may block.
//
// ctx ends with the cause ErrEnded when the take has ended: stop, and write nothing more, since somebody else may have
// the key. It ends with ErrStopping when Run has to return.
//
// An error has the key come again: the dispatcher counts its failures, and delays it longer each time. Result.After is
// the least delay then.
type Handler func(ctx context.Context, t *Take) (Result, error)

// ErrStopping is the cause with which a handler's context ends when Worker.Grace is over.
var ErrStopping = errors.New("the worker stops")

// Worker says how Run works. Client must be set.
type Worker struct {
	Client *Client
	// Name tells workers apart, and those that ask with Affine: give each process its own, and keep it over restarts of
	// the process if you can. Default: the name of the host, which in a Pod is the Pod's.
	Name string
	// Kinds are those of which keys are wanted, as "KIND.GROUP", or "KIND" in the core group. Empty: all.
	Kinds []string
	// Concurrency is how many keys are worked on at the same time; default 1, at most wire.MaxKeys.
	Concurrency int
	// Length is how long each take lasts, and is extended for; 0: as long as the dispatchers have configured. If this
	// process is lost, its keys come to others after that time.
	Length time.Duration
	// Affine asks for the same keys again, as long as this worker keeps asking.
	Affine bool
	// Stream has keys come on one connection as soon as they are ready, instead of by polls. It is faster if there are
	// many keys that take little time. Proxies in between must forward each line at once.
	Stream bool
	// Grace is for how long handlers go on when ctx of Run has ended; default 20 s. Negative: none. Then their contexts
	// end. Keys of handlers that return an error after that are released.
	Grace time.Duration
	// CrashOnPanic has the panic of a handler end the process. By default it is logged. In both cases the dispatcher is
	// told first that the work failed.
	CrashOnPanic bool
}

// Times of Run.
const (
	defaultGrace = 20 * time.Second
	// lastWords is how long Run waits after Grace for handlers to return, and for the dispatchers to hear of it.
	lastWords = 5 * time.Second
	// pollLength is how long a poll waits.
	pollLength = 30 * time.Second
	// streamAge is how long a stream is used. The times of its takes count from when it was opened, by two clocks whose
	// rates differ.
	streamAge = 5 * time.Minute
	// lastAnswer is how long an answer is waited for that may be on its way when Run has to stop. What it brings is
	// released.
	lastAnswer = 500 * time.Millisecond
	// emptyPause is waited after an answer without a key.
	emptyPause = 50 * time.Millisecond
	// lookEvery bounds how long a take is not looked at: timers stand still while the machine sleeps.
	lookEvery = 250 * time.Millisecond
	// extendGap is the shortest time between two extensions.
	extendGap = 200 * time.Millisecond
)

func (w *Worker) setDefaults() error {
	if w.Client == nil {
		return errors.New("dispatch worker: no Client")
	}
	if w.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("dispatch worker: no Name, and no name of the host: %w", err)
		}
		w.Name = host
	}
	if len(w.Name) > wire.MaxWorker {
		return fmt.Errorf("dispatch worker: Name has %d bytes, more than %d", len(w.Name), wire.MaxWorker)
	}
	if w.Concurrency == 0 {
		w.Concurrency = 1
	}
	if w.Concurrency < 0 || w.Concurrency > wire.MaxKeys {
		return fmt.Errorf("dispatch worker: Concurrency %d: must be from 1 to %d", w.Concurrency, wire.MaxKeys)
	}
	if w.Length < 0 {
		return fmt.Errorf("dispatch worker: Length %v: must not be negative", w.Length)
	}
	if w.Grace == 0 {
		w.Grace = defaultGrace
	}
	w.Grace = max(w.Grace, 0)
	return nil
}
