package workers

import (
	"context"
	"net/http"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// given is a take for a worker.
type given struct {
	wire.Take
	deadline time.Duration // by Dispatcher.Now
}

// from converts takes of this dispatcher.
func (f *Front) from(takes []queue.Take, user string) []given {
	now := f.d.Now()
	out := make([]given, 0, len(takes))
	for _, t := range takes {
		out = append(out, given{deadline: t.Deadline, Take: wire.Take{
			Token: f.seal(token{process: f.o.Process, what: tokenTake, id: t.ID, worker: t.Worker}, user),
			Kind:  t.Key.Kind, Namespace: t.Key.Namespace, Name: t.Key.Name, UID: t.UID, ResourceVersion: t.Version,
			Gone: t.Gone, Class: t.Class.String(), Attempt: t.Attempt, Slot: int(t.Slot), Epoch: t.Epoch,
			WaitedSeconds: max(now-t.Since, 0).Seconds(),
		}})
	}
	return out
}

// message converts a take for its worker, who sent the request at started or before. The clock of deadlines runs ahead
// when the wall clock is set, but the worker's clock does not, so the elapsed time is by the monotonic clock.
func (f *Front) message(g given, started time.Time) wire.Take {
	g.ExpiresInSeconds = f.expires(g.deadline, started)
	return g.Take
}

// expires returns when a deadline comes, in seconds after started.
func (f *Front) expires(deadline time.Duration, started time.Time) float64 {
	left := deadline - f.d.Now()
	if left <= 0 {
		return 0
	}
	return (left + time.Since(started)).Seconds()
}

// messages converts takes. The result is never null in JSON.
func (f *Front) messages(takes []given, started time.Time) []wire.Take {
	out := make([]wire.Take, 0, len(takes))
	for _, g := range takes {
		out = append(out, f.message(g, started))
	}
	return out
}

// putBack releases takes that did not reach their worker.
func (f *Front) putBack(takes []given, user string) {
	if len(takes) == 0 {
		return
	}
	f.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.life), patience)
		defer cancel()
		for _, g := range takes {
			t, genuine, err := f.parse(g.Token, user)
			if err == nil && genuine {
				_ = f.d.Release(t.id, t.worker) // it may have ended
			} else if err == nil {
				_ = f.peers.send(ctx, t.process, user, wire.PathRelease, wire.ReleaseRequest{Token: g.Token}, nil)
			}
		}
	})
}

func (f *Front) take(r *request) error {
	var in wire.TakeRequest
	if err := r.read(&in); err != nil {
		return err
	}
	kinds, wait, length, err := f.terms(r, in.Worker, in.Kinds, in.WaitSeconds, in.LengthSeconds)
	if err != nil {
		return err
	}
	if in.Max == 0 {
		in.Max = 1
	}
	if in.Max < 1 || in.Max > wire.MaxKeys {
		return problem(wire.ProblemInvalid, "max: %d: must be from 1 to %d", in.Max, wire.MaxKeys)
	}
	takes, err := f.poll(r.http.Context(), r, keeper.Ask{
		Worker: in.Worker, Kinds: kinds, Max: in.Max, Wait: wait - time.Since(r.started), Length: length, Affine: in.Affine,
	})
	if err != nil {
		return err
	}
	select {
	case <-f.d.Over():
		r.w.Header().Set("Connection", "close")
	default:
	}
	if err := r.answer(http.StatusOK, wire.TypeJSON, wire.TakeResponse{Takes: f.messages(takes, r.started)}); err != nil {
		f.putBack(takes, r.user)
	}
	return nil
}

// terms checks the fields that polls and streams share.
func (f *Front) terms(r *request, worker string, kinds []string, waitFor, lastFor float64) (
	allowed []string, wait, length time.Duration, err error,
) {
	if err = workerName(worker); err != nil {
		return nil, 0, 0, err
	}
	if wait, err = seconds("waitSeconds", waitFor, wire.MaxWaitSeconds); err != nil {
		return nil, 0, 0, err
	}
	if length, err = seconds("lengthSeconds", lastFor, longest); err != nil {
		return nil, 0, 0, err
	}
	allowed, err = f.mayTake(r, kinds)
	return allowed, wait, length, err
}

// poll waits for keys of this dispatcher or another one.
func (f *Front) poll(ctx context.Context, r *request, a keeper.Ask) ([]given, error) {
	a.Wait = max(a.Wait, 0)
	if !r.forwarded {
		if takes := f.whereOlder(ctx, r.user, a); len(takes) > 0 {
			return takes, nil
		}
	}
	answers := make(chan []given, 1)
	id, err := f.d.Ask(a, func(g queue.Given) { answers <- f.from(g.Takes, r.user) })
	if err != nil {
		return nil, refused(err)
	}
	select {
	case takes := <-answers: // at once
		if len(takes) > 0 || r.forwarded {
			return takes, nil
		}
		return f.elsewhere(ctx, r.user, a, f.peers.answering()), nil
	default:
	}
	if !r.forwarded {
		leave := f.wait(a, &waiter{ask: id, user: r.user, want: func() int { return a.Max }, deliver: func(takes []given) {
			answers <- takes
		}})
		defer leave()
	}
	select {
	case takes := <-answers:
		return takes, nil
	case <-ctx.Done():
		err = errGone
	case <-f.d.Over():
	}
	if f.d.Cancel(id) {
		return nil, err
	}
	takes := <-answers // they are about to come
	if err != nil {
		f.putBack(takes, r.user)
		return nil, err
	}
	return takes, nil
}

// elsewherePatience is how long a poll that does not wait for keys waits for other dispatchers' answers.
const elsewherePatience = time.Second

// whereOlder asks another dispatcher if its keys have waited longer than those here.
func (f *Front) whereOlder(ctx context.Context, user string, a keeper.Ask) []given {
	p, ok := f.sharing.ask(a.Kinds)
	if !ok {
		return nil
	}
	takes := f.elsewhere(ctx, user, a, []Process{p})
	if len(takes) == 0 {
		f.sharing.hadNone(p)
	}
	return takes
}

// elsewhere asks other dispatchers once. Keys that come too late or are too many are put back.
func (f *Front) elsewhere(ctx context.Context, user string, a keeper.Ask, peers []Process) (out []given) {
	most := a.Max
	a.Max = portion(a.Max, len(peers))
	answers := make(chan []given, len(peers))
	for _, p := range peers {
		f.running.Go(func() {
			takes, _ := f.peers.take(context.WithoutCancel(f.life), p, user, a, 0) // not aborted: see turn
			answers <- takes
		})
	}
	late := time.NewTimer(elsewherePatience)
	defer late.Stop()
	for i := range peers {
		select {
		case takes := <-answers:
			out = append(out, takes...)
			continue
		case <-late.C:
		case <-ctx.Done():
		}
		f.running.Go(func() {
			for range len(peers) - i {
				f.putBack(<-answers, user)
			}
		})
		break
	}
	n := min(len(out), most)
	f.putBack(out[n:], user)
	return out[:n]
}

// portion is how many of n keys to ask each of the others for.
func portion(n, others int) int {
	if others < 2 {
		return n
	}
	return (n + others - 1) / others
}
