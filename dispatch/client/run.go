package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Run takes keys and calls handle for each, until ctx ends. It extends a take while handle works on it, each time after
// a third of the remaining time. While the dispatchers refuse or do not answer, Run keeps trying and logs the reason.
//
// When ctx ends, Run stops taking keys, lets handlers continue for Worker.Grace, then cancels their contexts, and
// reports all results to the dispatchers. It returns nil, or an error with the keys of handlers that have not returned
// some seconds after that. If w is invalid, it returns an error at once.
func Run(ctx context.Context, w Worker, handle Handler) error {
	if err := w.setDefaults(); err != nil {
		return err
	}
	if handle == nil {
		return errors.New("dispatch worker: no handler")
	}
	base := context.WithoutCancel(ctx)
	r := &running{
		Worker: w, handle: handle, log: w.Client.log.WithValues("worker", w.Name), stopping: ctx,
		free: make(chan struct{}, w.Concurrency), jobs: map[jobKey]*job{}, streamAge: streamAge,
	}
	r.give(w.Concurrency)
	var cut context.CancelCauseFunc
	r.handlers, cut = context.WithCancelCause(base)
	defer cut(nil)
	var hush context.CancelFunc
	r.words, hush = context.WithCancel(base)
	defer hush()

	if w.Stream {
		r.stream(ctx)
	} else {
		r.poll(ctx)
	}

	idle := make(chan struct{})
	go func() { r.group.Wait(); close(idle) }()
	for _, phase := range []struct {
		wait time.Duration
		end  func()
	}{{w.Grace, func() { cut(ErrStopping) }}, {lastWords, hush}, {lastWords / 5, func() {}}} {
		timer := time.NewTimer(phase.wait)
		select {
		case <-idle:
			timer.Stop()
			return nil
		case <-timer.C:
			phase.end()
		}
	}
	return fmt.Errorf("dispatch worker: handlers have not returned: %s", r.names())
}

// running is a call of Run.
type running struct {
	Worker
	handle Handler
	log    logr.Logger
	// stopping ends when no more keys are wanted, handlers when handlers must return, and words when no more requests are
	// sent.
	stopping, handlers, words context.Context //nolint:containedctx // phases of Run
	// free has an item for each key that can be started.
	free      chan struct{}
	group     sync.WaitGroup
	streamAge time.Duration

	mu   sync.Mutex
	jobs map[jobKey]*job
}

type jobKey struct{ kind, namespace, name string }

// job is a key that a handler works on.
type job struct {
	take *Take
	end  context.CancelCauseFunc
	done chan struct{}
}

// acquire waits until a key can be started, and returns how many can. It returns 0 if ctx ended.
func (r *running) acquire(ctx context.Context) (n int) {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case <-r.free:
	case <-ctx.Done():
		return 0
	}
	for n = 1; ; n++ {
		select {
		case <-r.free:
		default:
			return n
		}
	}
}

func (r *running) give(n int) {
	for range n {
		r.free <- struct{}{}
	}
}

func (r *running) names() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, j := range r.jobs {
		names = append(names, j.take.String())
	}
	return strings.Join(names, ", ")
}

// soonAfter returns a context that ends a while after ctx, so that answers that a dispatcher has sent can still arrive.
func soonAfter(ctx context.Context) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		sleep(later, lastAnswer)
		cancel()
	})
	return later, func() { stop(); cancel() }
}

// poll takes keys by polling until ctx ends.
func (r *running) poll(ctx context.Context) {
	later, cancel := soonAfter(ctx)
	defer cancel()
	b := &backoff{}
	for {
		n := r.acquire(ctx)
		if n == 0 {
			return
		}
		takes, err := r.Client.Take(later, TakeRequest{
			Worker: r.Name, Kinds: r.Kinds, Max: n, WaitSeconds: pollLength.Seconds(),
			LengthSeconds: r.Length.Seconds(), Affine: r.Affine,
		})
		for i, t := range takes {
			if i >= n {
				r.refuse(t, "more keys came than were asked for")
				continue
			}
			r.start(t)
		}
		r.give(max(n-len(takes), 0))
		switch {
		case err != nil && ctx.Err() == nil:
			r.log.Error(err, "Cannot take keys; trying again")
			b.wait(ctx, err)
		case len(takes) == 0:
			sleep(ctx, emptyPause)
		default:
			b.delay = 0
		}
	}
}

// stream takes keys from streams until ctx ends.
func (r *running) stream(ctx context.Context) {
	b := &backoff{}
	for {
		n := r.acquire(ctx)
		if n == 0 {
			return
		}
		s, err := r.Client.Stream(ctx, StreamRequest{
			Worker: r.Name, Kinds: r.Kinds, Credit: n, LengthSeconds: r.Length.Seconds(), Affine: r.Affine,
		})
		if err != nil {
			r.give(n)
		} else {
			opened := time.Now()
			if err = r.follow(ctx, s, n); err == nil {
				b.delay = 0
				continue
			}
			if time.Since(opened) > maxDelay {
				b.delay = 0
			}
		}
		if ctx.Err() == nil {
			r.log.V(1).Info("A stream has ended; opening another one", "error", err.Error())
			if !errors.Is(err, ErrEnded) && !errors.Is(err, ErrUnavailable) {
				r.log.Error(err, "A stream failed; trying again")
			}
			b.wait(ctx, err)
		}
	}
}

// follow works on the keys of a stream until the stream ends, or is old, in which case the error is nil. The stream has
// credit for n keys, and that many can be started.
func (r *running) follow(ctx context.Context, s *Stream, n int) error {
	ctx, cancel := context.WithTimeout(ctx, r.streamAge)
	later, end := soonAfter(ctx)
	defer end()
	var mu sync.Mutex
	credit := n
	crediting := make(chan struct{})
	go func() {
		defer close(crediting)
		for {
			more := r.acquire(ctx)
			if more == 0 {
				return
			}
			mu.Lock()
			credit += more
			mu.Unlock()
			if err := s.Credit(ctx, more); err != nil {
				if ctx.Err() == nil {
					s.cancel(err)
				}
				return
			}
		}
	}()
	var err error
	for {
		var t *Take
		if t, err = s.Next(later); err != nil {
			break
		}
		mu.Lock()
		within := credit > 0
		if within {
			credit--
		}
		mu.Unlock()
		if !within { // the answer to Credit was lost
			r.refuse(t, "more keys came than there was credit for")
			continue
		}
		r.start(t)
	}
	old := errors.Is(ctx.Err(), context.DeadlineExceeded)
	cancel()
	s.Close()
	<-crediting
	r.give(credit)
	if old {
		return nil
	}
	return err
}

// refuse gives a key back.
func (r *running) refuse(t *Take, why string) {
	r.group.Go(func() {
		r.log.V(1).Info("A key is released", "key", t.String(), "reason", why)
		r.report(t, func(ctx context.Context) error { return r.Client.Release(ctx, t) })
	})
}

// report sends the result of a take, until the take expires.
func (r *running) report(t *Take, send func(context.Context) error) {
	ctx, cancel := context.WithTimeout(r.words, max(t.Remaining(), 0))
	defer cancel()
	switch err := send(ctx); {
	case errors.Is(err, ErrEnded):
		r.log.V(1).Info("A take had ended, or an attempt without an answer ended it", "key", t.String())
	case err != nil:
		r.log.Error(err, "Cannot end a take: it expires", "key", t.String())
	}
}

// start works on a key in the background. It owns one item of r.free, and returns it.
func (r *running) start(t *Take) {
	r.group.Go(func() {
		defer r.give(1)
		r.work(t)
	})
}

func (r *running) work(t *Take) {
	ctx, end := context.WithCancelCause(r.handlers)
	defer end(nil)
	j := &job{take: t, end: end, done: make(chan struct{})}
	begun := r.begin(j)
	if begun {
		defer r.finish(j)
	}
	switch {
	case t.Remaining() <= 0: // the process was suspended, or the answer delayed
		r.log.Info("A take ended before its handler began", "key", t.String())
		return
	case !begun:
		r.log.Info("A key came again before its previous handler returned", "key", t.String())
		r.report(t, func(ctx context.Context) error {
			return r.Client.Done(ctx, t, Result{
				Retry: true, Reason: "the handler that had the key before has not returned",
			})
		})
		return
	case r.stopping.Err() != nil:
		r.report(t, func(ctx context.Context) error { return r.Client.Release(ctx, t) })
		return
	}

	keeping, stop := context.WithCancel(ctx)
	var keepers sync.WaitGroup
	keepers.Go(func() { r.watch(keeping, t, end) })
	keepers.Go(func() { r.extend(keeping, t, end) })
	result, err := r.call(ctx, t)
	var crash *panicError
	panicked := errors.As(err, &crash)
	stop()
	keepers.Wait()

	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrEnded):
		r.log.Info("A take ended before its handler did", "key", t.String(), "reason", cause.Error())
	case err != nil && errors.Is(cause, ErrStopping) && !panicked:
		r.report(t, func(ctx context.Context) error { return r.Client.Release(ctx, t) })
	default:
		if err != nil {
			r.log.Error(err, "A key will come again", "key", t.String(), "attempt", t.Attempt)
			result.Retry, result.Reason = true, err.Error()
		}
		r.report(t, func(ctx context.Context) error { return r.Client.Done(ctx, t, result) })
	}
	if panicked && r.CrashOnPanic {
		panic(crash.value)
	}
}

// begin waits until no other handler has the key, since the handler of an expired take may still be running. It returns
// false if that takes too long.
func (r *running) begin(j *job) bool {
	key := jobKey{j.take.Kind, j.take.Namespace, j.take.Name}
	for {
		r.mu.Lock()
		other := r.jobs[key]
		if other == nil {
			r.jobs[key] = j
			r.mu.Unlock()
			return true
		}
		r.mu.Unlock()
		other.end(fmt.Errorf("%w: the key was handed out again", ErrEnded))
		timer := time.NewTimer(j.take.Remaining() / 2)
		select {
		case <-other.done:
			timer.Stop()
		case <-timer.C:
			return false
		}
	}
}

func (r *running) finish(j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, jobKey{j.take.Kind, j.take.Namespace, j.take.Name})
	close(j.done)
}

// watch cancels the work when the take expires.
func (r *running) watch(ctx context.Context, t *Take, end context.CancelCauseFunc) {
	for {
		left := t.Remaining()
		if left <= 0 {
			end(fmt.Errorf("%w: the take has expired", ErrEnded))
			return
		}
		if !sleep(ctx, min(left, lookEvery)) {
			return
		}
	}
}

// extend extends the take for as long as the work lasts.
func (r *running) extend(ctx context.Context, t *Take, end context.CancelCauseFunc) {
	b := &backoff{}
	for sleep(ctx, max(t.Remaining()/3, extendGap)) {
		err := r.Client.Extend(ctx, t, r.Length)
		switch {
		case err == nil:
			b.delay = 0
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrEnded):
			end(err)
			return
		default:
			r.log.Error(err, "Cannot extend a take; trying again until it expires", "key", t.String())
			if !b.wait(ctx, err) {
				return
			}
		}
	}
}
