package rota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// startPeriod is the time between two checks for running informers.
	startPeriod = 20 * time.Millisecond
)

// awaitWiring waits until an informer of the kind of each controller runs. It returns false when
// ctx ends. It returns an error after startPatience; or at once if no client was wrapped, or nobody works on a shared
// kind.
func (r *Rota) awaitWiring(ctx context.Context) (bool, error) {
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

// checkInformers returns an error for controllers without a running informer that holds this member's share of their
// kind.
func (r *Rota) checkInformers() error {
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

// checkClients returns an error if there are queues and no client was wrapped: writes of their workers would have no
// deadline.
func (r *Rota) checkClients() error {
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

// unseen handles a request of an informer that did not go through a wrapped client. Then the rota does not see what
// such clients watch, nor which resource is of which kind, so that writes might not be noted (rule R8). If
// ShareInformer got the client, Run ends.
func (r *Rota) unseen(kind schema.GroupKind) {
	r.mu.Lock()
	shared := slices.ContainsFunc(r.started, func(s start) bool { return s.client && s.kind == kind })
	r.mu.Unlock()
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
	if _, told := r.toldUnseen.LoadOrStore(kind, true); !told {
		r.log.Info("Lists and watches of an informer do not come through a client of what rota.WrapConfig (or "+
			"WrapTransport) returns, or without their context: writes of its kind are noted only where its resource is the "+
			"regular plural of the kind, or by Rota.Wrote", "kind",
			kind.String())
	}
}

// watchWiring checks for faults that show only while the member works.
func (r *Rota) watchWiring(ctx context.Context) {
	tick := time.NewTicker(startPatience)
	defer tick.Stop()
	ended := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ended = r.checkEnded(ended)
		for _, c := range r.controllers.All() {
			c.Check()
		}
	}
}

// askForResets logs which queues have handlers on informers of children, and no function of OnReset. Controllers like
// those of Kubernetes count the events that such handlers get; whether these do cannot be known.
func (r *Rota) askForResets() {
	r.mu.Lock()
	started := r.started
	r.mu.Unlock()
	for _, c := range r.controllers.All() {
		if c.HasDecided() || c.Informer == nil {
			continue
		}
		for _, s := range started {
			if _, owner := r.share.Owners(s.kind)[c.Kind]; owner && s.owned && r.share.Heard(s.informer) {
				r.log.Info("A queue has handlers on an informer of children, and no function of OnReset. If its controller waits "+
					"for events of what it wrote before it counts objects (expectations, as in Kubernetes' own controllers), it "+
					"waits in vain for those of the time in which a slot was shut: have OnReset forget what is expected. If it "+
					"does not, say so by OnReset(nil)", "controller", c.Name, "kind", c.Kind.String(), "children", s.kind.String())
				break
			}
		}
	}
}
