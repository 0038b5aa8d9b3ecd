package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

const (
	// startPeriod is the time between two checks for running informers.
	startPeriod = 20 * time.Millisecond
)

// awaitWiring waits until each controller's kind has a running informer. It returns false when ctx ends. It returns an
// error after startPatience, or at once if no client was wrapped or a shared kind has no controller.
func (r *Engine) awaitWiring(ctx context.Context) (bool, error) {
	late := time.NewTimer(startPatience)
	defer late.Stop()
	tick := time.NewTicker(startPeriod)
	defer tick.Stop()
	for {
		err := r.checkInformers()
		if err == nil {
			return true, errors.Join(r.checkClients(), r.checkUnworked())
		}
		select {
		case <-tick.C:
		case <-late.C:
			return false, err
		case <-ctx.Done():
			return false, nil
		}
	}
}

// checkInformers returns an error for controllers whose kind has no running informer with this member's share.
func (r *Engine) checkInformers() error {
	var errs []error
	for _, c := range r.controllers.All() {
		made, runs := r.share.Informers(c.Kind)
		switch {
		case runs || c.IsKindLate():
		case made:
			errs = append(errs, fmt.Errorf("controller %s: the informer of %s with this member's share was not started", c.Name,
				c.Kind))
		default:
			errs = append(errs, fmt.Errorf("controller %s: no informer of %s holds this member's share, so that it would miss "+
				"what happens: call rota.ShareInformer (or Rota.NewInformer) for the kind before its factory is asked for it, add "+
				"the handlers to the informer that it returns, and make the queue of it with rota.NewQueue", c.Name, c.Kind))
		}
	}
	return errors.Join(errs...)
}

// checkClients returns an error if there are queues but no client was wrapped, because writes of their workers would
// have no deadline.
func (r *Engine) checkClients() error {
	if r.writes.Wrapped() {
		select {
		case err := <-r.bypassed:
			return err
		default:
			return nil
		}
	}
	for _, c := range r.controllers.All() {
		if c.Informer != nil && !r.fakes {
			return fmt.Errorf("queue %s: no client was made of what rota.WrapConfig (or WrapTransport) returns, so that writes "+
				"would not end when a slot is lost: wrap the config of every client of the workers and of the informers", c.Name)
		}
	}
	return nil
}

// unseen handles a request that an informer sent through an unwrapped client. The rota cannot see what such clients
// watch or which resource belongs to which kind, so it might miss writes (rule R8). If the client was passed to
// ShareInformer, Run ends with an error.
func (r *Engine) unseen(kind schema.GroupKind) {
	shared := slices.ContainsFunc(r.setup.informers(), func(s start) bool { return s.client && s.kind == kind })
	if r.fakes {
		return
	}
	if shared {
		select {
		case r.bypassed <- fmt.Errorf("informer of %s: its lists and watches do not come through a client of what "+
			"rota.WrapConfig (or WrapTransport) returns, so that the next owner of a slot might not wait for what was written "+
			"in it: give ShareInformer, and the factory, a client of the wrapped config", kind):
		default:
		}
		return
	}
	if _, logged := r.loggedUnseen.LoadOrStore(kind, true); !logged {
		r.log.Info("Lists and watches of an informer do not come through a client of what rota.WrapConfig (or "+
			"WrapTransport) returns, or without their context: writes of its kind are noted only where its resource is the "+
			"regular plural of the kind, or by Rota.Wrote", "kind",
			kind.String())
	}
}

// watchWiring checks for wiring mistakes that show only while the member works.
func (r *Engine) watchWiring(ctx context.Context) {
	tick := time.NewTicker(startPatience)
	defer tick.Stop()
	ended := false
	stranded := map[schema.GroupKind]bool{}
	for looks := 0; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if looks%strandedPeriod == 0 {
			r.logStranded(stranded)
		}
		ended = r.checkEnded(ended)
		for _, c := range r.controllers.All() {
			c.Check()
		}
	}
}

// strandedPeriod is how many checks pass between two searches for stranded children.
const strandedPeriod = 6

// strandedAfter is how long children may wait for their finalizers before that is logged.
const strandedAfter = time.Minute

// logStranded logs, once for each kind, that children without owners wait for their finalizers.
func (r *Engine) logStranded(reported map[schema.GroupKind]bool) {
	for kind, names := range r.share.Stranded(time.Now().Add(-strandedAfter)) {
		if reported[kind] {
			continue
		}
		reported[kind] = true
		r.log.Info("Objects are deleted, their owners are gone, and they wait for their finalizers. If this program takes "+
			"these off by a work queue about the children (as orphanQueue of Kubernetes' Job controller), nothing comes to "+
			"that queue with a slot: make it with rota.NewQueueOf and the owners' informer, whose sync gets the owners "+
			"that are gone", "kind", kind.String(), "objects", len(names), "first", names[0])
	}
}

// askForResets asks, for each informer of children with handlers, whether a controller counts the events that the
// handlers get, as Kubernetes' controllers do. The rota cannot know that, nor to which of the owners' controllers the
// handlers belong. So it does not ask if one of those controllers has an OnReset function.
func (r *Engine) askForResets() {
	for _, s := range r.setup.informers() {
		if !s.owned || !r.share.Heard(s.informer) {
			continue
		}
		for owner := range r.share.Owners(s.kind) {
			var asked []string
			answered := false
			for _, c := range r.controllers.All() {
				resets, decided := c.Resets()
				answered = answered || c.Kind == owner && resets
				if c.Kind == owner && c.Informer != nil && !decided {
					asked = append(asked, c.Name)
				}
			}
			if answered || len(asked) == 0 {
				continue
			}
			r.log.Info("An informer of children has handlers, and no queue of their owners has a function of OnReset. If a "+
				"controller waits for events of what it wrote before it counts objects (expectations or a tracker, as in "+
				"Kubernetes' own controllers), it misses the events from the time in which a slot was shut: let OnReset "+
				"forget what is expected. If none does, call OnReset(nil)", "children", s.kind.String(), "kind",
				owner.String(), "controllers", strings.Join(asked, ", "))
		}
	}
}

// checkUnworked returns an error for informers made with ShareInformer whose kind has handlers but no controller. When
// a slot arrives, its objects go to the controllers of the kind and not to the handlers. With key Name or UID, an
// object that a handler enqueues on behalf of another one is mostly on a different member. A call of Shard for the kind
// confirms that the handlers are enough.
func (r *Engine) checkUnworked() error {
	started := r.setup.informers()
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

// checkOwners returns an error for an owner kind in Children.Of that has no controller: no one works on the slots of
// these owners. Usually the group was forgotten; worked then has a kind of the same name.
func (r *Engine) checkOwners(
	kind schema.GroupKind, worked []schema.GroupKind, works func(schema.GroupKind) bool,
) error {
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

// unworkedOwner returns the error for children whose owner kind has no queue.
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
		return fmt.Errorf("informer of %s: it has handlers, and there is no queue, so the objects of a slot that comes "+
			"here would not be reconciled: make a queue of the owners' informer with rota.NewQueue. A library with an internal "+
			"work queue cannot be sharded: make it a duty (Rota.Duty), and do not call ShareInformer", kind)
	}
	return fmt.Errorf("informer of %s: it has handlers, and no queue was made with it, so the objects of a slot that "+
		"comes here would not be reconciled: make a queue with rota.NewQueue; or, if its handlers enqueue the objects' "+
		"owners, pass rota.Children to ShareInformer; or leave ShareInformer out, so that every member has the whole kind. "+
		"A library with an internal work queue cannot be sharded: make it a duty (Rota.Duty). If its handlers only "+
		"observe, such as for metrics or an index, or its objects have the names of those that are worked on, so that they "+
		"are in the same slots, call Rota.Shard", kind)
}

// informerStopped implements delivery.Options.Stopped.
func (r *Engine) informerStopped(kind schema.GroupKind) {
	r.hasStopped.Store(true)
	r.stopped(kind)
}

// stopped reports an informer that has stopped and was not replaced. While the member works, its informers must run;
// otherwise caches are stale and reconciles go wrong. So controllers that need the kind do not work
// (delivery.Share.Lacks).
func (r *Engine) stopped(kind schema.GroupKind) {
	if r.working.Load() && !r.ending.Load() && slices.Contains(r.share.Ended(), kind) {
		r.faults.Note("informer of "+kind.String(), "stopped", "it stopped before the member left, so that nothing is "+
			"reconciled that needs it: start it, or its factory, with the context that Rota.Work gives to its function, which "+
			"ends after the member has left")
	}
}

// checkEnded reports informers that have stopped and were not replaced, and returns whether there are any. If there
// were and all have been replaced, it enqueues the keys that waited.
func (r *Engine) checkEnded(were bool) (are bool) {
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
