package controllers

import (
	"sync/atomic"
)

// wiring records what a controller's calls have shown about its wiring.
type wiring struct {
	late                           atomic.Bool // ExpectKindLate was called
	given, added, admitted, forgot atomic.Bool
}

// ExpectKindLate lets Run join although the controller's kind has no informer yet: the adapter waits until the kind is
// installed and then makes one. Call it before Run.
func (c *Controller) ExpectKindLate() { c.wiring.late.Store(true) }

// IsKindLate reports whether ExpectKindLate was called.
func (c *Controller) IsKindLate() bool { return c.wiring.late.Load() }

// Check looks for wiring mistakes that show only while the member works.
func (c *Controller) Check() {
	c.CheckClients()
	switch informer := c.Informer; {
	case informer != nil && !c.env.Share.Heard(informer):
		c.fault("no handler", "no event handler was added to the informer that its queue was made with, so that changes "+
			"are missed: add it to the informer that rota.ShareInformer returned", "kind", c.Kind.String())
	case informer == nil && c.wiring.given.Load() && !c.wiring.added.Load() && !c.IsKindLate():
		c.fault("enqueue", "its Enqueue was given objects, and none of them came to its queue: Enqueue has to add to the "+
			"Queue that NewQueue returned, as the Enqueue of rota.NewQueue does", "kind", c.Kind.String())
	}
}

// fault records that the controller is wired wrongly; see Faults.Note.
func (c *Controller) fault(id, text string, details ...any) {
	c.env.Faults.Note("controller "+c.Name, id, text, details...)
}
