package controllers

import "fmt"

// Missing describes what the member waits for until Started is called.
func (c *Controller) Missing() string {
	c.mu.Lock()
	explain := c.explain
	c.mu.Unlock()
	if explain != nil {
		if why := explain(); why != "" {
			return fmt.Sprintf("the workers of controller %s: %s", c.Name, why)
		}
	}
	return fmt.Sprintf("the workers of controller %s, which have not asked its queue for work: they must Get from the "+
		"Queue that NewQueue returned", c.Name)
}

// Started records that the controller's workers run. The member joins once the workers of all controllers do, so that
// it takes no slots without workers. Queue.Get calls Started. Call it if workers use another queue or start only after
// the member has joined. It may be called more than once.
func (c *Controller) Started() { c.begin.Do(func() { close(c.begun) }) }

// Begun returns a channel that is closed when Started is called.
func (c *Controller) Begun() <-chan struct{} { return c.begun }

// Explain sets a function that returns why the workers do not run yet, or "" if it cannot know. It is called
// concurrently and must not block.
func (c *Controller) Explain(why func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.explain = why
}
