// Package streamtest runs package stream against a model of an API server whose watch lags, whose lists and look-ups are
// ahead of the watch or behind it by the time they are used, and whose objects move, are deleted, replaced by namesakes
// and mislabeled at any moment. A life is drawn from a seed.
//
// After every step:
//
//   - Nothing comes back: the store gets no state of a name older than one that it had, and nothing that it was told is
//     deleted.
//   - Reached is true: where the stream says that a slot shows everything up to a version, it does.
//
// At the end, when the watch has caught up and labels are right, the store is the server's share, and the ledger knows
// no more than it has to.
package streamtest
