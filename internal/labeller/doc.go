// Package labeller puts a label with the hash of its key on every object of given kinds, so that the API server can
// select the objects of one share.
//
// Use it for kinds that are delivered by that label; nothing else needs it. It takes one write per object, once in the
// object's life. The value follows from the object's namespace and name alone. So it does not matter who writes it, how
// often or when: patches carry no precondition, a late patch is right, and two labellers at work do each other no harm.
// That one member does it (Options.Permit) saves work; it protects nothing.
//
// # How objects with a missing or wrong label are found
//
// In each resource, as long as the labeller is permitted:
//
//	list  !LABEL             what is missing, by pages          ─┐
//	watch LABEL notin (0…)   what becomes missing or malformed  ─┼▶ patches
//	scan  all, slowly        what else is wrong                 ─┘
//
// The watch begins where the list began and runs beside it: objects created during a long backlog do not wait for its
// end. After 410 Gone the list begins again. Nothing is kept of an object beyond the page or the batch that it came in.
//
// Options.Value computes another value, for children for instance one that follows from their controlling owner.
//
// The two selectors differ because of what they cost the API server for each object that is as it should be (measured
// with Kubernetes 1.36 and 10,000 ConfigMaps): 0.2 µs for !LABEL, the short one, and 5 µs for LABEL notin (0…), the
// long one. A list looks at every object of the kind: of a million, that would be five seconds of its time
// instead of a fifth of one, whenever a labeller begins. A watch looks only at those that change: 9 µs for each, where
// the change itself costs the server a millisecond; and what a malformed value hides from all shares must not wait for
// a scan. The malformed ones from before the watch are left to the scan with which a labeller begins. A list that
// stands in for a watch that was lost uses the long selector.
//
// That makes a URL of 27 KB: the API server takes it, a proxy before it may not. Where it is answered by 400, 414 or
// 431 the short selector is used throughout, and malformed values wait for a scan.
//
// A well-formed value may be another object's, because someone edited or copied it. No selector finds that. Any member
// that is sent such an object calls Fix, without Options.Permit. The scan finds the rest.
//
// # Limits
//
// All writers of one label on one kind must agree about its value, or they would rewrite each other's for ever. The
// same holds for kinds whose labels another controller resets, as the EndpointSlice controller does. Do not shard such
// kinds by label.
package labeller
