package workers

import (
	"net/http"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

func (f *Front) done(r *request) error {
	var in struct { // one of them
		wire.DoneRequest
		wire.DoneAllRequest
	}
	if err := r.read(&in); err != nil {
		return err
	}
	e := each[wire.DoneRequest, wire.DoneAnswer]{
		path:  wire.PathDone,
		token: func(in wire.DoneRequest) string { return in.Token },
		check: func(in wire.DoneRequest) error {
			_, err := resultOf(in)
			return err
		},
		own: func(t token, in wire.DoneRequest) (wire.DoneAnswer, error) {
			result, err := resultOf(in)
			if err != nil {
				return wire.DoneAnswer{}, err
			}
			return wire.DoneAnswer{}, f.d.Done(t.id, t.worker, result)
		},
		problem: func(p wire.Problem) wire.DoneAnswer { return wire.DoneAnswer{Problem: &p} },
	}
	return e.answer(f, r, in.DoneRequest, in.Takes, func(wire.DoneAnswer) error {
		return r.answer(http.StatusNoContent, "", nil)
	})
}

// resultOf converts the result of the work.
func resultOf(in wire.DoneRequest) (queue.Result, error) {
	after, err := seconds("afterSeconds", in.AfterSeconds, longest)
	if err != nil {
		return queue.Result{}, err
	}
	if in.Result != "" && in.Result != wire.ResultOK && in.Result != wire.ResultRetry {
		return queue.Result{}, problem(wire.ProblemInvalid, "result: %q: must be %q or %q", in.Result, wire.ResultOK,
			wire.ResultRetry)
	}
	return queue.Result{Retry: in.Result == wire.ResultRetry, Reason: in.Reason, After: after}, nil
}

func (f *Front) release(r *request) error {
	var in wire.ReleaseRequest
	if err := r.read(&in); err != nil {
		return err
	}
	t, own, err := f.own(r, tokenTake, in.Token)
	if err != nil {
		return err
	}
	if own {
		err = refused(f.d.Release(t.id, t.worker))
	} else {
		err = f.pass(r, t, wire.PathRelease, in, nil)
	}
	if err != nil {
		return err
	}
	return r.answer(http.StatusNoContent, "", nil)
}

func (f *Front) extend(r *request) error {
	var in struct { // one of them
		wire.ExtendRequest
		wire.ExtendAllRequest
	}
	if err := r.read(&in); err != nil {
		return err
	}
	e := each[wire.ExtendRequest, wire.ExtendAnswer]{
		path:  wire.PathExtend,
		token: func(in wire.ExtendRequest) string { return in.Token },
		check: func(in wire.ExtendRequest) error {
			_, err := lengthOf(in)
			return err
		},
		own: func(t token, in wire.ExtendRequest) (wire.ExtendAnswer, error) {
			length, err := lengthOf(in)
			if err != nil {
				return wire.ExtendAnswer{}, err
			}
			e, err := f.d.Extend(t.id, t.worker, length)
			return wire.ExtendAnswer{ExpiresInSeconds: f.expires(e.Deadline, r.started), Draining: e.Draining}, err
		},
		problem: func(p wire.Problem) wire.ExtendAnswer { return wire.ExtendAnswer{Problem: &p} },
		late: func(out *wire.ExtendAnswer, by time.Duration) {
			if out.Problem == nil {
				out.ExpiresInSeconds += by.Seconds()
			}
		},
	}
	return e.answer(f, r, in.ExtendRequest, in.Takes, func(out wire.ExtendAnswer) error {
		answer := wire.ExtendResponse{ExpiresInSeconds: out.ExpiresInSeconds, Draining: out.Draining}
		return r.answer(http.StatusOK, wire.TypeJSON, answer)
	})
}

// lengthOf converts the requested length of a take.
func lengthOf(in wire.ExtendRequest) (time.Duration, error) {
	return seconds("lengthSeconds", in.LengthSeconds, longest)
}

// pass forwards a request about another dispatcher's take or stream. It decodes the answer into out, unless that is
// nil.
func (f *Front) pass(r *request, t token, path string, in, out any) error {
	if r.forwarded {
		return problem(wire.ProblemEnded, "%s", hasEnded)
	}
	return f.peers.send(r.http.Context(), t.process, r.user, path, in, out)
}
