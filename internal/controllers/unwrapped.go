package controllers

// CheckClients reports a controller that sends requests through clients that were not wrapped. If it uses no wrapped
// ones, its writes are not safe, which is a fault. Otherwise those requests may be reads, and CheckClients only logs.
func (c *Controller) CheckClients() {
	wrapped := c.requests.Wrapped.Load()
	switch unwrapped := c.requests.All.Load() - wrapped; {
	case unwrapped <= 0 || c.env.Writes.ByHand():
	case wrapped == 0:
		c.fault("unwrapped client", "the clients that its workers use were not made of what rota.WrapConfig (or "+
			"WrapTransport) returns, so that their writes go on when a slot is lost, and its next owner does not wait until it "+
			"sees them: make the clients of the wrapped config, or note what they write with Rota.Wrote", "requests", unwrapped)
	case !c.loggedUnwrapped.Swap(true):
		c.env.Log.Info("Some requests of reconciles go to the API server through a client that was not made of what "+
			"rota.WrapConfig (or WrapTransport) returns. That is right for reads. Writes through it go on when a slot is lost, "+
			"and its next owner does not wait until it sees them", "controller", c.Name, "requests", unwrapped)
	}
}
