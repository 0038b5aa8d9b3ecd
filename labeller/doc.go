// Package labeller puts a label with the hash of its key on every object of given kinds, so that the API server itself
// can tell the objects of one share from those of another.
//
// Use it for kinds that are delivered by that label; nothing else needs it. It takes one write per object, once in
// the object's life. The value follows from the object's namespace and name alone. So it does not matter who writes it,
// how often or when: patches carry no precondition, a late one is right, and two labellers at work do each other no
// harm. That one member does it (Options.Permit) saves work; it protects nothing.
//
// # How what is wrong is found
//
// In each resource, as long as the labeller is permitted:
//
//	list  !LABEL             what is missing, by pages          ─┐
//	watch LABEL notin (0…)   what becomes missing or malformed  ─┼▶ patches
//	scan  all, slowly        what else is wrong                 ─┘
//
// The watch begins where the list began, and beside it: objects created while a long backlog is worked off do not
// wait for its end. After 410 Gone the list begins anew. Nothing is kept of an object beyond the page or the batch that
// it came in.
//
// Options.Value makes it another value: for children one that follows from their controlling owner, say.
//
// The two selectors differ because of what they cost the API server for an object that is as it should be, measured by
// TestSelectorCost (Kubernetes 1.36, 10,000 ConfigMaps): 0.2 µs for the short one, 5 µs for the long one. A list looks
// at every object of the kind: of a million, that would be five seconds of its time instead of a fifth of one, whenever a
// labeller begins. A watch looks only at those that change: 9 µs for each, where the change itself costs the server a
// millisecond; and what a malformed value hides from all shares must not wait for a scan. The malformed ones from before
// the watch are left to the scan with which a labeller begins. A list that stands in for a watch that was lost uses the
// long selector.
//
// That makes a URL of 27 KB: the API server takes it, a proxy before it may not. Where it is answered by 400, 414 or 431
// the short selector is used throughout, and malformed values wait for a scan.
//
// A well-formed value that is not the object's own, because someone edited it or copied it from another object, is
// selected by nothing. Whoever is given such an object calls Fix, on any member and without Options.Permit; the scan
// finds the rest.
//
// # Limits
//
// All who write one label on one kind must agree about its value, or they would rewrite each other's for ever. The same
// goes for a kind whose labels another controller keeps as it wants them, as that of EndpointSlices does with those of
// EndpointSlices: do not shard such kinds by label.
package labeller
