package controllers

import (
	"sync/atomic"
)

// wiring is what a controller's calls have shown of its wiring.
type wiring struct {
	late                           atomic.Bool // ExpectKindLate was called
	given, added, admitted, forgot atomic.Bool
}

// ExpectKindLate lets Run join although no informer of the controller's kind was made yet: the adapter waits for the
// kind to be installed, and makes one then. Call it before Run.
func (c *Controller) ExpectKindLate() { c.wiring.late.Store(true) }

// IsKindLate reports whether ExpectKindLate was called.
func (c *Controller) IsKindLate() bool { return c.wiring.late.Load() }

// Check looks for faults that show only while the member works.
func (c *Controller) Check() {
	c.CheckClients()
	switch informer := c.Informer; {
	case informer != nil && !c.env.Share.Heard(informer):
		c.fault("no handler", "no event handler was added to the informer that its queue was made with, so that changes "+
			"reach nobody: add it to the informer that rota.ShareInformer returned", "kind", c.Kind.String())
	case informer == nil && c.wiring.given.Load() && !c.wiring.added.Load() && !c.IsKindLate():
		c.fault("enqueue", "its Enqueue was given objects, and none of them came to its queue: Enqueue has to add to the "+
			"Queue that NewQueue returned, as that of rota.NewQueue does by itself", "kind", c.Kind.String())
	}
}

// fault notes that the controller is wired wrongly; see Faults.Note.
func (c *Controller) fault(id, text string, details ...any) {
	c.env.Faults.Note("controller "+c.Name, id, text, details...)
}

// CheckClients tells of a controller that sends requests through clients that were not wrapped. If it uses no other
// ones, its writes are not what a member's have to be. Otherwise these may be reads.
func (c *Controller) CheckClients() {
	wrapped := c.requests.Wrapped.Load()
	switch unwrapped := c.requests.All.Load() - wrapped; {
	case unwrapped <= 0 || c.env.Writes.ByHand():
	case wrapped == 0:
		c.fault("unwrapped client", "the clients that its workers use were not made of what rota.WrapConfig (or "+
			"WrapTransport) returns, so that their writes go on when a slot is lost, and its next owner does not wait until it "+
			"sees them: make the clients of the wrapped config, or note what they write with Rota.Wrote", "requests", unwrapped)
	case !c.toldUnwrapped.Swap(true):
		c.env.Log.Info("Some requests of reconciles go to the API server through a client that was not made of what "+
			"rota.WrapConfig (or WrapTransport) returns. That is right for reads. Writes through it go on when a slot is lost, "+
			"and its next owner does not wait until it sees them", "controller", c.Name, "requests", unwrapped)
	}
}
