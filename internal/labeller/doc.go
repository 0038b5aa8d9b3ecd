// Package labeller sets a label with the hash of its key on every object of some kinds, so that the API server can
// select the objects of one share.
//
// Use it for kinds that are delivered by that label; nothing else needs it. It takes one write in an object's life. The
// value depends only on the object's namespace and name. So it does not matter who writes it, how often or when:
// patches carry no precondition, a late patch is still right, and two labellers do each other no harm. Letting only one
// member label (Options.Permit) saves work but is not needed for safety.
//
// # How objects with a missing or wrong label are found
//
// In each resource, while the labeller is permitted:
//
//	list  !LABEL             what is missing, by pages          ─┐
//	watch LABEL notin (0…)   what becomes missing or malformed  ─┼▶ patches
//	scan  all, slowly        what else is wrong                 ─┘
//
// The watch begins at the list's version and runs beside the list, so objects created during a long backlog do not wait
// for its end. After 410 Gone the list begins again. No object is kept beyond the page or batch that it came in.
//
// Options.Value replaces the value, for example for children by one that depends on their controlling owner.
//
// The two selectors differ because of what they cost the API server for each object whose label is right (measured with
// Kubernetes 1.36 and 10,000 ConfigMaps): 0.2 µs for !LABEL, the short one, and 5 µs for LABEL notin (0…), the long
// one. A list checks every object of the kind. For a million objects, the long selector would take five seconds of the
// server's time instead of 0.2, whenever a labeller starts. A watch checks only objects that change, at 9 µs each,
// while the change itself takes the server a millisecond. The watch uses the long selector because a malformed value
// hides an object from all shares and must not wait for a scan. Values that were malformed before the watch are left to
// the scan with which a labeller starts. A list that replaces a lost watch uses the long selector.
//
// The long selector makes a URL of 27 KB, which the API server accepts but a proxy may not. If it is answered by 400,
// 414 or 431, the short selector is used throughout, and malformed values wait for a scan.
//
// A well-formed value may belong to another object, because someone edited or copied it. No selector finds that. Any
// member that receives such an object calls Fix, which needs no Options.Permit. The scan finds the rest.
//
// # Limits
//
// All writers of a label on a kind must agree on its value, or they would overwrite each other forever. The same is
// true for kinds whose labels another controller resets, as the EndpointSlice controller does. Do not shard such kinds
// by label.
package labeller
