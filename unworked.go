package rota

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// checkUnworked returns an error for informers of ShareInformer whose handlers are all that would work on their kinds.
// Handlers hear nothing of the objects of a slot that comes: these go to the controllers of the kind. With key Name or
// UID, an object that a handler enqueues for another one is mostly on another member than that one. A call of Shard for
// the kind says that this is wanted.
func (r *Rota) checkUnworked() error {
	if r.shadow != nil {
		return nil
	}
	r.mu.Lock()
	started := r.started
	r.mu.Unlock()
	controllers := r.registered()
	var errs []error
	for _, s := range started {
		_, declared := r.declared.Load(s.kind)
		works := slices.ContainsFunc(controllers, func(c *Controller) bool { return c.kind == s.kind }) ||
			r.keeps(s.kind.String())
		along := (s.owned || r.cfg.Key == slot.KeyNamespace) && (len(controllers) > 0 || r.keeper != nil)
		if !declared && !works && !along && r.share.Heard(s.informer) {
			errs = append(errs, unworked(s.kind, s.owned))
		}
	}
	return errors.Join(errs...)
}

func unworked(kind schema.GroupKind, owned bool) error {
	if owned {
		return fmt.Errorf("informer of %s: it has handlers, and there is no queue, so that nobody would be given the "+
			"objects of a slot that comes here: make a queue of the owners' informer with rota.NewQueue. A library with a "+
			"work queue of its own cannot be sharded: make it a duty (Rota.Duty), and do not call ShareInformer", kind)
	}
	return fmt.Errorf("informer of %s: it has handlers, and no queue was made with it, so that nobody would be given the "+
		"objects of a slot that comes here: make a queue with rota.NewQueue; or, if its handlers enqueue the objects' "+
		"owners, pass rota.Children to ShareInformer; or leave ShareInformer out, so that every member has the whole kind. "+
		"A library with a work queue of its own cannot be sharded: make it a duty (Rota.Duty). If its objects have the "+
		"names of those that are worked on, so that they are in the same slots, say so with Rota.Shard", kind)
}
