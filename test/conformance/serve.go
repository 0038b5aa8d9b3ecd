package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// serve answers a request of a user who is accepted. An answer of nil is 204.
func (t *Tier) serve(w http.ResponseWriter, req *http.Request, body []byte, answer func(int)) (any, error) {
	method := http.MethodPost
	if req.URL.Path == wire.PathStats || req.URL.Path == wire.PathOpenAPI {
		method = http.MethodGet
	}
	if req.Method != method {
		return nil, problem{wire.ProblemMethod, http.StatusMethodNotAllowed, "use " + method}
	}
	if method == http.MethodPost && req.Header.Get("Content-Type") != wire.TypeJSON {
		return nil, problem{wire.ProblemMediaType, http.StatusUnsupportedMediaType, "send " + wire.TypeJSON}
	}
	switch req.URL.Path {
	case wire.PathTake:
		return t.take(req, body)
	case wire.PathStream:
		return streamed{}, t.stream(w, req, body, answer)
	case wire.PathCredit:
		return nil, t.credit(body)
	case wire.PathDone:
		return t.done(body)
	case wire.PathExtend:
		return t.extend(body)
	case wire.PathRelease:
		return nil, t.release(body)
	case wire.PathStats:
		stats, _ := t.Stats()
		return wire.Stats{Dispatchers: 1, Kinds: []wire.KindStats{{
			Kind: Kind, Ready: stats.Ready, Delayed: stats.Delayed, Taken: stats.Taken, Pending: stats.Ready + stats.Taken,
		}}}, nil
	}
	return nil, problem{wire.ProblemNotFound, http.StatusNotFound, "there is no such path"}
}

// ask asks the queue. given is called with t.mu held.
func (t *Tier) ask(a queue.Ask, given func(queue.Given)) (uint64, error) {
	if a.Worker == "" || len(a.Worker) > wire.MaxWorker || a.Max > wire.MaxKeys {
		return 0, errors.New("worker must be there, and not be too long; not too many keys")
	}
	t.mu.Lock()
	t.lastAsk++
	a.ID = t.lastAsk
	err := t.queue.Ask(t.now(), a)
	if err == nil {
		t.asks[a.ID] = given
	}
	t.mu.Unlock()
	t.step()
	return a.ID, ended(err)
}

// cancel ends an ask; those of a queue that is no more are unknown.
func (t *Tier) cancel(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asks[id] != nil {
		t.queue.Cancel(t.now(), id)
		delete(t.asks, id)
	}
}

// toWire gives takes tokens. t.mu is held. The time they expire at counts from then.
func (t *Tier) toWire(takes []queue.Take, from time.Duration) []wire.Take {
	out := make([]wire.Take, 0, len(takes))
	for i := range takes {
		k := &takes[i]
		token := newToken()
		t.takes[token] = takeOf{k.ID, k.Worker}
		out = append(out, wire.Take{
			Token: token, Kind: k.Key.Kind, Namespace: k.Key.Namespace, Name: k.Key.Name, UID: k.UID,
			ResourceVersion: k.Version, Gone: k.Gone, Class: k.Class.String(), Attempt: k.Attempt, Slot: int(k.Slot),
			Epoch: k.Epoch, WaitedSeconds: (k.Begun - k.Since).Seconds(),
			ExpiresInSeconds: (k.Deadline - from).Seconds(),
		})
	}
	return out
}

func (t *Tier) take(req *http.Request, body []byte) (any, error) {
	var in wire.TakeRequest
	if err := read(body, &in); err != nil {
		return nil, err
	}
	if in.WaitSeconds < 0 || in.WaitSeconds > wire.MaxWaitSeconds {
		return nil, fmt.Errorf("waitSeconds %v", in.WaitSeconds)
	}
	from := t.now()
	answers := make(chan []wire.Take, 1)
	id, err := t.ask(queue.Ask{
		Worker: in.Worker, Kinds: in.Kinds, Max: max(in.Max, 1), Until: from + duration(in.WaitSeconds),
		Length: duration(in.LengthSeconds), Affine: in.Affine,
	}, func(g queue.Given) { answers <- t.toWire(g.Takes, from) })
	if err != nil {
		return nil, err
	}
	select {
	case takes := <-answers:
		return wire.TakeResponse{Takes: takes}, nil
	case <-req.Context().Done():
		t.cancel(id)
		select {
		case takes := <-answers: // they were on their way
			t.undo(takes)
		default:
		}
		return nil, req.Context().Err()
	}
}

// undo releases takes that nobody has heard of.
func (t *Tier) undo(takes []wire.Take) {
	defer t.step()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range takes {
		k := t.takes[takes[i].Token]
		_ = t.queue.Release(t.now(), k.id, k.worker)
	}
}

// heartbeat is sent on streams.
const heartbeat = time.Second

func (t *Tier) stream(w http.ResponseWriter, req *http.Request, body []byte, answer func(int)) error {
	var in wire.StreamRequest
	if err := read(body, &in); err != nil {
		return err
	}
	from := t.now()
	events := make(chan wire.Take, wire.MaxKeys)
	id, err := t.ask(queue.Ask{
		Worker: in.Worker, Kinds: in.Kinds, Max: in.Credit, Length: duration(in.LengthSeconds), Affine: in.Affine,
		Stream: true,
	}, func(g queue.Given) {
		for _, k := range t.toWire(g.Takes, from) {
			events <- k
		}
	})
	if err != nil {
		return err
	}
	defer func() {
		t.cancel(id)
		for len(events) > 0 {
			t.undo([]wire.Take{<-events})
		}
	}()
	name := newToken()
	t.mu.Lock()
	t.streams[name] = id
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.streams, name)
	}()
	w.Header().Set("Content-Type", wire.TypeStream)
	answer(http.StatusOK)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for event := (wire.StreamEvent{Stream: name}); ; {
		_, err := w.Write(append(bytes.TrimSpace(t.encode(event)), '\n'))
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			return nil // the connection has ended
		}
		event = wire.StreamEvent{}
		select {
		case k := <-events:
			event.Take = &k
		case <-beat.C:
		case <-req.Context().Done():
			return nil
		}
	}
}

func (t *Tier) credit(body []byte) error {
	var in wire.CreditRequest
	if err := read(body, &in); err != nil {
		return err
	}
	defer t.step()
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.streams[in.Stream]
	if !ok {
		return problem{wire.ProblemEnded, http.StatusGone, "the stream has ended"}
	}
	return t.queue.More(t.now(), id, in.Credit)
}

// find returns a take. t.mu is held. Tokens of a queue that is no more are of takes that have ended.
func (t *Tier) find(token string) (takeOf, error) {
	k, ok := t.takes[token]
	if !ok {
		return takeOf{}, ended(queue.ErrTake)
	}
	return k, nil
}

func (t *Tier) done(body []byte) (any, error) {
	var in struct {
		wire.DoneRequest
		wire.DoneAllRequest
	}
	if err := read(body, &in); err != nil {
		return nil, err
	}
	defer t.step()
	if in.Takes == nil {
		return nil, t.doneOne(in.DoneRequest)
	}
	if err := checkTakes(in.Takes, func(k wire.DoneRequest) string { return k.Token }); err != nil {
		return nil, err
	}
	out := wire.DoneAllResponse{}
	for _, k := range in.Takes {
		out.Takes = append(out.Takes, wire.DoneAnswer{Problem: message(t.doneOne(k))})
	}
	return out, nil
}

func (t *Tier) doneOne(in wire.DoneRequest) error {
	if in.Result != "" && in.Result != wire.ResultOK && in.Result != wire.ResultRetry {
		return fmt.Errorf("result %q", in.Result)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.find(in.Token)
	if err != nil {
		return err
	}
	return ended(t.queue.Done(t.now(), k.id, k.worker, queue.Result{
		Retry: in.Result == wire.ResultRetry, After: duration(in.AfterSeconds),
	}))
}

func (t *Tier) extend(body []byte) (any, error) {
	from := t.now()
	var in struct {
		wire.ExtendRequest
		wire.ExtendAllRequest
	}
	if err := read(body, &in); err != nil {
		return nil, err
	}
	defer t.step()
	if in.Takes == nil {
		e, err := t.extendOne(in.ExtendRequest)
		if err != nil {
			return nil, err
		}
		return wire.ExtendResponse{ExpiresInSeconds: (e.Deadline - from).Seconds(), Draining: e.Draining}, nil
	}
	if err := checkTakes(in.Takes, func(k wire.ExtendRequest) string { return k.Token }); err != nil {
		return nil, err
	}
	out := wire.ExtendAllResponse{}
	for _, k := range in.Takes {
		e, err := t.extendOne(k)
		a := wire.ExtendAnswer{Problem: message(err)}
		if err == nil {
			a.ExpiresInSeconds, a.Draining = (e.Deadline - from).Seconds(), e.Draining
		}
		out.Takes = append(out.Takes, a)
	}
	return out, nil
}

func (t *Tier) extendOne(in wire.ExtendRequest) (queue.Extended, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.find(in.Token)
	if err != nil {
		return queue.Extended{}, err
	}
	e, err := t.queue.Extend(t.now(), k.id, k.worker, duration(in.LengthSeconds))
	return e, ended(err)
}

// checkTakes refuses what is wrong with a request about several takes.
func checkTakes[T any](takes []T, token func(T) string) error {
	if len(takes) == 0 || len(takes) > wire.MaxTakes {
		return fmt.Errorf("takes: there are %d: send from 1 to %d", len(takes), wire.MaxTakes)
	}
	seen := map[string]bool{}
	for _, k := range takes {
		if seen[token(k)] || token(k) == "" {
			return errors.New("takes: each must have a token, and be there once")
		}
		seen[token(k)] = true
	}
	return nil
}

func (t *Tier) release(body []byte) error {
	var in wire.ReleaseRequest
	if err := read(body, &in); err != nil {
		return err
	}
	defer t.step()
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.find(in.Token)
	if err != nil {
		return err
	}
	return ended(t.queue.Release(t.now(), k.id, k.worker))
}
