package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// Handler works on a key. Run calls it in a separate goroutine for each key, for up to Worker.Concurrency keys at once,
// but never concurrently for the same key. It may block.
//
// ctx ends with the cause ErrEnded when the take has ended: stop, and write nothing more, since another worker may have
// the key. It ends with ErrStopping when Run has to return.
//
// If the handler returns an error, the key comes again: the dispatcher counts its failures, and delays it longer each
// time. Result.After is then the shortest delay.
type Handler func(ctx context.Context, t *Take) (Result, error)

// ErrStopping is the cause with which handlers' contexts end when Worker.Grace is over.
var ErrStopping = errors.New("the worker stops")

// Worker configures Run. Client must be set.
type Worker struct {
	Client *Client
	// Name identifies the worker, which matters with Affine: give each process its own name, and keep it over restarts of
	// the process if you can. Default: the host name, which in a Pod is the Pod's name.
	Name string
	// Kinds are the wanted kinds, as "KIND.GROUP", or "KIND" in the core group. Default: all.
	Kinds []string
	// Concurrency is how many handlers run at the same time. Default 1, at most wire.MaxKeys.
	Concurrency int
	// Length is how long each take lasts, and is extended for. Default: as configured in the dispatchers. If this process
	// is lost, its keys go to other workers after that time.
	Length time.Duration
	// Affine asks to get the same keys again, as long as this worker keeps asking.
	Affine bool
	// Stream receives keys over one connection as soon as they are ready, instead of polling. It is faster for many keys
	// that take little time. Proxies in between must forward each line at once.
	Stream bool
	// Grace is how long handlers may continue after Run's ctx has ended. Default 20 s. Negative means not at all. Then
	// their contexts end. Keys of handlers that return an error after that are released.
	Grace time.Duration
	// CrashOnPanic makes a handler's panic end the process. By default it is logged. In both cases the failure is first
	// reported to the dispatcher.
	CrashOnPanic bool
}

// Times of Run.
const (
	defaultGrace = 20 * time.Second
	// lastWords is how long Run waits after Grace for handlers to return, and for reports to reach the dispatchers.
	lastWords = 5 * time.Second
	// pollLength is how long a poll waits.
	pollLength = 30 * time.Second
	// streamAge is how long a stream is used. The times of its takes count from when it was opened, by two clocks whose
	// rates differ.
	streamAge = 5 * time.Minute
	// lastAnswer is how long Run waits for an answer that may be in transit when it has to stop. The keys in it are
	// released.
	lastAnswer = 500 * time.Millisecond
	// emptyPause is the pause after an answer without a key.
	emptyPause = 50 * time.Millisecond
	// lookEvery bounds the time between two checks of a take's deadline, since timers stop while the machine sleeps.
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
