package front

import (
	"net/http"
	"sync"

	"github.com/rota-dev/rota/dispatch/wire"
)

// stats sums up all dispatchers. Names of kinds are no secret, so that any user may see them.
func (f *Front) stats(r *request) error {
	kinds, _ := f.d.Stats()
	now := f.d.Now()
	out := wire.Stats{Dispatchers: 1}
	for _, k := range kinds {
		s := wire.KindStats{Kind: k.Kind, Ready: k.Ready, Delayed: k.Delayed, Taken: k.Taken, Pending: k.Ready + k.Taken}
		if k.Ready > 0 {
			s.OldestSeconds = max(now-k.Oldest, 0).Seconds()
		}
		out.Kinds = append(out.Kinds, s)
	}
	if !r.forwarded {
		var mu sync.Mutex
		var asked sync.WaitGroup
		for _, p := range f.peers.all() {
			asked.Go(func() {
				var theirs wire.Stats
				err := f.peers.send(r.http.Context(), p, r.user, wire.PathStats, nil, &theirs)
				mu.Lock()
				defer mu.Unlock()
				if out.Dispatchers++; err != nil {
					out.Silent++
					return
				}
				add(&out, theirs)
			})
		}
		asked.Wait()
	}
	return r.answer(http.StatusOK, wire.TypeJSON, out)
}

// add adds the figures of another dispatcher. In a rollout it may have other kinds.
func add(out *wire.Stats, theirs wire.Stats) {
	for _, t := range theirs.Kinds {
		for i := range out.Kinds {
			if k := &out.Kinds[i]; k.Kind == t.Kind {
				k.Ready, k.Delayed, k.Taken = k.Ready+t.Ready, k.Delayed+t.Delayed, k.Taken+t.Taken
				k.Pending, k.OldestSeconds = k.Pending+t.Pending, max(k.OldestSeconds, t.OldestSeconds)
			}
		}
	}
}
