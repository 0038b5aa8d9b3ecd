package rota

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// informerStopped is delivery.Options.Stopped.
func (r *Rota) informerStopped(kind schema.GroupKind) {
	r.hasStopped.Store(true)
	r.stopped(kind)
}

// stopped reports an informer that has stopped and that nothing has replaced. While the member works, its informers
// must run: their caches would be old, and what is reconciled by them wrong. So controllers that need the kind do not
// work (delivery.Share.Lacks).
func (r *Rota) stopped(kind schema.GroupKind) {
	if r.working.Load() && !r.ending.Load() && slices.Contains(r.share.Ended(), kind) {
		r.faults.Note("informer of "+kind.String(), "stopped", "it stopped before the member left, so that nothing is "+
			"reconciled that needs it: start it, or its factory, with the context that Rota.Work gives to its function, which "+
			"ends after the member has left")
	}
}

// checkEnded reports informers that have stopped as long as none takes their place, and returns whether there are any.
// If there were and are no more, it enqueues what waited.
func (r *Rota) checkEnded(were bool) (are bool) {
	were = r.hasStopped.Swap(false) || were // it may have been replaced since the last check
	ended := r.share.Ended()
	for _, kind := range ended {
		r.stopped(kind)
	}
	if were && len(ended) == 0 {
		r.controllers.Complete(nil)
	}
	return len(ended) > 0
}
