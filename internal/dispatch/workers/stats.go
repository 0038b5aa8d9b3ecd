package workers

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// figuresPatience is how long other dispatchers may take to answer with their figures.
const figuresPatience = time.Second

// everywhere asks the other dispatchers on behalf of a user, and calls add with each answer. It does not wait for
// dispatchers that did not answer a moment ago.
func everywhere[T any](ctx context.Context, f *Front, user, path string, add func(Process, T)) (others, silent int) {
	all, answering := f.peers.all(), f.peers.answering()
	others, silent = len(all), max(len(all)-len(answering), 0)
	ctx, cancel := context.WithTimeoutCause(ctx, figuresPatience, errSlow)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, p := range answering {
		asked.Go(func() {
			var theirs T
			err := f.peers.send(ctx, p, user, path, nil, &theirs)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent++
				return
			}
			add(p, theirs)
		})
	}
	asked.Wait()
	return others, silent
}

// figures returns this dispatcher's figures.
func (f *Front) figures() (out []wire.KindStats) {
	kinds, _ := f.d.Stats()
	now := f.d.Now()
	for _, k := range kinds {
		out = append(out, figuresOf(now, k))
	}
	return out
}

func figuresOf(now time.Duration, k queue.Stats) wire.KindStats {
	s := wire.KindStats{Kind: k.Kind, Ready: k.Ready, Delayed: k.Delayed, Taken: k.Taken, Pending: k.Ready + k.Taken}
	if k.MaxTaken > 0 {
		s.Pending = min(s.Pending, k.MaxTaken)
	}
	if k.Ready > 0 {
		s.OldestSeconds = max(now-k.Oldest, 0).Seconds()
	}
	if k.OldestChanged > 0 {
		s.OldestChangedSeconds = max(now-k.OldestChanged, 0).Seconds()
	}
	return s
}

// sumFor is how long the sum of all dispatchers' figures is cached, since anyone with a token may ask for it.
const sumFor = 200 * time.Millisecond

// sum is the cached sum of all dispatchers' figures.
type sum struct {
	mu    sync.Mutex // held while others are asked
	at    time.Time
	stats wire.Stats
}

// get returns the sum, and updates it if it is too old.
func (s *sum) get(f *Front) wire.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < sumFor {
		return s.stats
	}
	out := wire.Stats{Kinds: f.figures()}
	others, silent := everywhere(f.life, f, f.o.Self, wire.PathStats, func(_ Process, theirs wire.Stats) {
		add(&out, theirs)
	})
	out.Dispatchers, out.Silent = 1+others, silent
	s.at, s.stats = time.Now(), out
	return out
}

// stats answers with the figures of all dispatchers, or with this one's if another dispatcher asks. Any user may see
// them, since names of kinds are not secret.
func (f *Front) stats(r *request) error {
	if r.forwarded {
		return r.answer(http.StatusOK, wire.TypeJSON, wire.Stats{Kinds: f.figures(), Dispatchers: 1})
	}
	return r.answer(http.StatusOK, wire.TypeJSON, f.sum.get(f))
}

// add adds the figures of another dispatcher. During a rollout it may have other kinds.
func add(out *wire.Stats, theirs wire.Stats) {
	for _, t := range theirs.Kinds {
		for i := range out.Kinds {
			if k := &out.Kinds[i]; k.Kind == t.Kind {
				k.Ready, k.Delayed, k.Taken = k.Ready+t.Ready, k.Delayed+t.Delayed, k.Taken+t.Taken
				k.Pending, k.OldestSeconds = k.Pending+t.Pending, max(k.OldestSeconds, t.OldestSeconds)
				k.OldestChangedSeconds = max(k.OldestChangedSeconds, t.OldestChangedSeconds)
			}
		}
	}
}

// failingMost is how many keys the path failing lists by default.
const failingMost = 100

// failing lists the failing keys of all dispatchers, starting with those that have failed for the longest time. It
// contains names of objects, so it is for users who may take them.
func (f *Front) failing(r *request) error {
	query := r.http.URL.Query()
	most := failingMost
	for field, values := range query {
		switch {
		case field == "kind":
		case field != "max" || len(values) > 1:
			return problem(wire.ProblemInvalid, "query: %s: it takes kind, and max once", field)
		default:
			n, err := strconv.Atoi(values[0])
			if err != nil || n < 0 || n > wire.MaxKeys {
				return problem(wire.ProblemInvalid, "max: %q: must be from 0 to %d", values[0], wire.MaxKeys)
			}
			most = n
		}
	}
	kinds, err := f.mayTake(r, query["kind"])
	if err != nil {
		return err
	}
	keys, total := f.d.Failing(kinds, most)
	now := f.d.Now()
	out := wire.Failing{Total: total, Keys: []wire.FailingKey{}}
	for _, k := range keys {
		key := wire.FailingKey{
			Kind: k.Key.Kind, Namespace: k.Key.Namespace, Name: k.Key.Name, Attempts: k.Attempts, Reason: k.Reason,
			Taken: k.Taken, SinceSeconds: max(now-k.Since, 0).Seconds(), LastSeconds: max(now-k.Last, 0).Seconds(),
		}
		if !k.Taken {
			key.NextSeconds = max(k.Next-now, 0).Seconds()
		}
		out.Keys = append(out.Keys, key)
	}
	out.Dispatchers = 1
	if !r.forwarded {
		path := wire.PathFailing + "?" + url.Values{"kind": kinds, "max": {strconv.Itoa(most)}}.Encode()
		others, silent := everywhere(r.http.Context(), f, r.user, path, func(_ Process, theirs wire.Failing) {
			out.Total += theirs.Total
			out.Keys = append(out.Keys, theirs.Keys...)
		})
		out.Dispatchers, out.Silent = 1+others, silent
	}
	slices.SortStableFunc(out.Keys, func(a, b wire.FailingKey) int { return cmp.Compare(b.SinceSeconds, a.SinceSeconds) })
	out.Keys = out.Keys[:min(len(out.Keys), most)]
	return r.answer(http.StatusOK, wire.TypeJSON, out)
}
