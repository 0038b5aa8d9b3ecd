package front

import (
	"net/http"
	"time"

	"github.com/rota-dev/rota/dispatch"
	"github.com/rota-dev/rota/dispatch/wire"
)

func (f *Front) done(r *request) error {
	var in wire.DoneRequest
	if err := r.read(&in); err != nil {
		return err
	}
	after, err := seconds("afterSeconds", in.AfterSeconds, longest)
	if err != nil {
		return err
	}
	if in.Result != "" && in.Result != wire.ResultOK && in.Result != wire.ResultRetry {
		return problem(wire.ProblemInvalid, "result: %q: must be %q or %q", in.Result, wire.ResultOK, wire.ResultRetry)
	}
	t, own, err := f.own(r, tokenTake, in.Token)
	if err != nil {
		return err
	}
	if !own {
		return f.pass(r, t, wire.PathDone, in, nil)
	}
	err = f.d.Done(t.id, t.worker, dispatch.Result{Retry: in.Result == wire.ResultRetry, After: after})
	if err != nil {
		return refused(err)
	}
	return r.answer(http.StatusNoContent, "", nil)
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
	if !own {
		return f.pass(r, t, wire.PathRelease, in, nil)
	}
	if err := f.d.Release(t.id, t.worker); err != nil {
		return refused(err)
	}
	return r.answer(http.StatusNoContent, "", nil)
}

func (f *Front) extend(r *request) error {
	var in wire.ExtendRequest
	if err := r.read(&in); err != nil {
		return err
	}
	length, err := seconds("lengthSeconds", in.LengthSeconds, longest)
	if err != nil {
		return err
	}
	t, own, err := f.own(r, tokenTake, in.Token)
	if err != nil {
		return err
	}
	var out wire.ExtendResponse
	if !own {
		before := time.Since(r.started)
		return f.pass(r, t, wire.PathExtend, in, &out, func() { out.ExpiresInSeconds += before.Seconds() })
	}
	e, err := f.d.Extend(t.id, t.worker, length)
	if err != nil {
		return refused(err)
	}
	out = wire.ExtendResponse{ExpiresInSeconds: f.expires(e.Deadline, r.started), Draining: e.Draining}
	return r.answer(http.StatusOK, wire.TypeJSON, out)
}

// pass has another dispatcher answer a request about a take or a stream of its own. Its answer is read into out, unless
// that is nil, and then corrected.
func (f *Front) pass(r *request, t token, path string, in, out any, correct ...func()) error {
	if r.forwarded {
		return problem(wire.ProblemEnded, "%s", hasEnded)
	}
	if err := f.peers.send(r.http.Context(), t.process, r.user, path, in, out); err != nil {
		return err
	}
	if out == nil {
		return r.answer(http.StatusNoContent, "", nil)
	}
	for _, c := range correct {
		c()
	}
	return r.answer(http.StatusOK, wire.TypeJSON, out)
}
