// Package streamtest runs package stream against a model of an API server, at random.
//
// A world is a stream, the server and the store that the stream fills. The watch lags. Lists and look-ups are ahead of
// the watch or behind it by the time they are used. Objects move, are deleted, replaced by namesakes and mislabeled at
// any moment. Run draws what happens next from a seed.
//
// After every step:
//
//   - Nothing comes back: the store gets no state of a name older than one that it had, and no object that it was sent
//     the deletion of.
//   - Reached is true: where the stream says that a slot shows everything up to a version, it does.
//
// At the end of a life the watch catches up and labels become right. Then the store is the server's share, and the
// ledger holds no more than it has to.
//
// The simulator (package sim) uses the same model of a kind, State and Change, and the same Store with its checks.
package streamtest
