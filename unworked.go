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
	r.mu.Lock()
	started := r.started
	r.mu.Unlock()
	controllers := r.controllers.All()
	var worked []schema.GroupKind
	for _, c := range controllers {
		worked = append(worked, c.Kind)
	}
	works := func(kind schema.GroupKind) bool {
		return slices.Contains(worked, kind) || slices.Contains(r.keeper.Kinds(), kind.String())
	}
	var errs []error
	for _, s := range started {
		_, declared := r.declared.Load(s.kind)
		if declared || !r.share.Heard(s.informer) {
			continue
		}
		if s.owned {
			errs = append(errs, r.checkOwners(s.kind, worked, works))
			continue
		}
		along := r.cfg.Key == slot.KeyNamespace && len(controllers)+len(r.keeper.Kinds()) > 0
		if !works(s.kind) && !along {
			errs = append(errs, unworked(s.kind, false))
		}
	}
	return errors.Join(errs...)
}

// checkOwners returns an error for a kind with Children.Of that nobody works on: the objects of that owner are in slots
// that nobody hears of. It is mostly a group that was forgotten, which worked has then.
func (r *Rota) checkOwners(kind schema.GroupKind, worked []schema.GroupKind, works func(schema.GroupKind) bool) error {
	if len(worked)+len(r.keeper.Kinds()) == 0 {
		return unworked(kind, true)
	}
	var errs []error
	for owner := range r.share.Owners(kind) {
		_, declared := r.declared.Load(owner)
		along := r.cfg.Key == slot.KeyNamespace && r.share.Sharded(owner)
		if !works(owner) && !declared && !along {
			errs = append(errs, unworkedOwner(kind, owner, worked))
		}
	}
	return errors.Join(errs...)
}

// unworkedOwner is the error for children of a kind that no queue is about.
func unworkedOwner(kind, owner schema.GroupKind, worked []schema.GroupKind) error {
	hint := ""
	for _, w := range worked {
		if w.Kind == owner.Kind {
			hint = fmt.Sprintf(". Did you mean schema.GroupKind{Group: %q, Kind: %q}?", w.Group, w.Kind)
		}
	}
	return fmt.Errorf("informer of %s: its rota.Children is of %s (group %q), and no queue is about that kind, "+
		"so its objects would be on other members than their owners: name the kind of a queue's informer in Children.Of, "+
		"with its group, or make a queue of the owners' informer with rota.NewQueue%s", kind, owner, owner.Group, hint)
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
		"A library with a work queue of its own cannot be sharded: make it a duty (Rota.Duty). If its handlers only "+
		"observe, such as for metrics or an index, or its objects have the names of those that are worked on, so that they "+
		"are in the same slots, say so with Rota.Shard", kind)
}
