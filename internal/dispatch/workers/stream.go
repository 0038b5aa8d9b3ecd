package workers

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// stream is a stream in progress.
type stream struct {
	kick   chan struct{}
	waiter *waiter
	ask    keeper.Ask

	mu sync.Mutex
	// credit is how many more keys may come. lent is for how many of these another dispatcher is being asked first.
	credit, lent int
	queue        []given // not sent yet
	end          string  // why it ends, or empty
	over         bool    // nothing more is sent
}

// push adds keys to send. It returns false if it is too late for that.
func (s *stream) push(takes []given) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.queue = append(s.queue, takes...)
	s.credit -= len(takes)
	s.wake()
	return true
}

func (s *stream) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// finish ends the stream.
func (s *stream) finish(why string) {
	s.mu.Lock()
	s.end = why
	s.mu.Unlock()
	s.wake()
}

// close stops the sending, and returns the keys that were not sent.
func (s *stream) close() []given {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.queue
}

// next returns what to send.
func (s *stream) next() (takes []given, end string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	takes, s.queue = s.queue, nil
	return takes, s.end
}

func (s *stream) wants() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.credit-s.lent, 0)
}

// lend reserves credit for n keys, until it is given back with -n.
func (s *stream) lend(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent += n
}

func (f *Front) stream(r *request) error {
	var in wire.StreamRequest
	if err := r.read(&in); err != nil {
		return err
	}
	if r.forwarded {
		return problem(wire.ProblemInvalid, "streams are not passed on")
	}
	kinds, _, length, err := f.terms(r, in.Worker, in.Kinds, 0, in.LengthSeconds)
	if err != nil {
		return err
	}
	if in.Credit < 0 || in.Credit > wire.MaxKeys {
		return problem(wire.ProblemInvalid, "credit: %d: must be from 0 to %d", in.Credit, wire.MaxKeys)
	}
	a := keeper.Ask{Worker: in.Worker, Kinds: kinds, Length: length, Affine: in.Affine, Stream: true}
	s := &stream{kick: make(chan struct{}, 1), ask: a}
	deliver := func(takes []given) {
		if !s.push(takes) {
			f.putBack(takes, r.user)
		}
	}
	id, err := f.d.Ask(a, func(g queue.Given) { deliver(f.from(g.Takes, r.user)) })
	if err != nil {
		return refused(err)
	}
	s.waiter = &waiter{ask: id, user: r.user, want: s.wants, deliver: deliver}
	leave := f.wait(a, s.waiter)
	f.mu.Lock()
	f.streams[id] = s
	if f.life.Err() != nil {
		s.finish("this dispatcher ends")
	}
	f.mu.Unlock()
	if in.Credit > 0 {
		s.mu.Lock()
		s.credit = in.Credit
		s.mu.Unlock()
		_ = f.have(s, in.Credit) // it has not ended
	}
	rest := f.sendStream(r, s, in.Kinds, wire.StreamEvent{
		Stream: f.seal(token{process: f.o.Process, what: tokenStream, id: id, worker: in.Worker}, r.user),
	})
	f.d.Cancel(id)
	leave()
	f.mu.Lock()
	delete(f.streams, id)
	f.mu.Unlock()
	f.putBack(append(rest, s.close()...), r.user)
	return nil
}

// sendStream sends keys as they come until the stream ends, and returns those that the worker did not get.
func (f *Front) sendStream(r *request, s *stream, kinds []string, first wire.StreamEvent) (rest []given) {
	r.w.Header().Set("Content-Type", wire.TypeStream)
	r.w.Header().Set("Cache-Control", "no-store")
	r.w.Header().Set("X-Accel-Buffering", "no") // a proxy must not wait for more
	control := http.NewResponseController(r.w)
	lines := json.NewEncoder(r.w)
	// send returns how many events it has at least begun to send, and whether the client still receives.
	send := func(events ...wire.StreamEvent) (begun int, ok bool) {
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		for i, e := range events {
			if lines.Encode(e) != nil {
				return i + 1, false
			}
		}
		return len(events), control.Flush() == nil
	}
	if _, ok := send(first); !ok {
		return nil
	}
	checked := time.Now()
	beat := time.NewTicker(wire.HeartbeatSeconds * time.Second / 2)
	defer beat.Stop()
	for {
		takes, end := s.next()
		events := make([]wire.StreamEvent, 0, len(takes)+1)
		for _, g := range takes {
			m := f.message(g, r.started)
			events = append(events, wire.StreamEvent{Take: &m})
		}
		if end != "" {
			events = append(events, wire.StreamEvent{End: end})
		}
		if r.http.Context().Err() != nil {
			return takes
		}
		if len(events) > 0 {
			if begun, ok := send(events...); !ok {
				return takes[min(begun, len(takes)):]
			}
		}
		if end != "" {
			return nil
		}
		select {
		case <-s.kick:
		case <-beat.C:
			if _, ok := send(wire.StreamEvent{}); !ok {
				return nil
			}
			if time.Since(checked) >= checkAgain {
				checked = time.Now()
				if why := f.stillMay(r, kinds); why != nil {
					s.finish(why.Error())
				}
			}
		case <-f.d.Over():
			s.finish("this dispatcher ends")
		case <-r.http.Context().Done():
			return nil
		}
	}
}

// checkAgain is how often a stream's user is authenticated and authorized again.
const checkAgain = time.Minute

// stillMay returns why a stream's user may not take keys any more, or nil if it may or that cannot be decided now.
func (f *Front) stillMay(r *request, kinds []string) error {
	user, err := f.o.Guard.Authenticate(r.http)
	if err == nil {
		r.access = user
		_, err = f.mayTake(r, kinds)
	}
	var refused *access.Error
	if errors.As(err, &refused) && refused.Problem != wire.ProblemUnavailable && refused.Problem != wire.ProblemTooMany {
		return refused
	}
	return nil
}

func (f *Front) credit(r *request) error {
	var in wire.CreditRequest
	if err := r.read(&in); err != nil {
		return err
	}
	t, own, err := f.own(r, tokenStream, in.Stream)
	if err != nil {
		return err
	}
	if !own {
		if err := f.pass(r, t, wire.PathCredit, in, nil); err != nil {
			return err
		}
		return r.answer(http.StatusNoContent, "", nil)
	}
	f.mu.Lock()
	s := f.streams[t.id]
	f.mu.Unlock()
	if s == nil {
		return problem(wire.ProblemEnded, "the stream has ended: open another one")
	}
	s.mu.Lock()
	if in.Credit < 1 || s.credit+in.Credit > wire.MaxKeys {
		defer s.mu.Unlock()
		return problem(wire.ProblemInvalid, "credit: %d more with %d left: must be above 0, and %d in all at most", in.Credit,
			s.credit, wire.MaxKeys)
	}
	s.credit += in.Credit
	s.mu.Unlock()
	if err := f.have(s, in.Credit); err != nil {
		return problem(wire.ProblemEnded, "the stream has ended: open another one")
	}
	return r.answer(http.StatusNoContent, "", nil)
}

// have gives a stream n more keys from its credit: first from another dispatcher if the keys there have waited longer,
// and the rest from any.
func (f *Front) have(s *stream, n int) error {
	p, ok := f.sharing.ask(s.ask.Kinds)
	if !ok {
		return f.haveAny(s, n)
	}
	s.lend(n)
	a := s.ask
	a.Max = n
	f.running.Go(func() {
		takes := f.elsewhere(f.life, s.waiter.user, a, []Process{p})
		if len(takes) == 0 {
			f.sharing.hadNone(p)
		} else {
			s.waiter.deliver(takes)
		}
		s.lend(-n)
		if len(takes) < n {
			_ = f.haveAny(s, n-len(takes)) // it may have ended
		}
	})
	return nil
}

// haveAny gives a stream n more keys from any dispatcher.
func (f *Front) haveAny(s *stream, n int) error {
	if err := f.d.More(s.waiter.ask, n); err != nil {
		return err
	}
	f.credited(s.waiter)
	return nil
}
