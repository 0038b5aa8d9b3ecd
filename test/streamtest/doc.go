// Package streamtest runs package stream against a model of an API server, at random and exhaustively.
//
// A world is a stream, the server and the store that the stream fills. The watch lags. Lists and look-ups are ahead of
// the watch or behind it by the time they are used. Objects move, are deleted, replaced by namesakes and mislabeled at
// any moment. What happens next is an act (act.go). Run draws the acts of a life from a seed. Search goes through every
// order of acts in a small world, breadth first, within the bounds of a Scope.
//
// After every act:
//
//   - Nothing comes back: the store gets no state of a name older than one that it had, and nothing that it was told is
//     deleted.
//   - Reached is true: where the stream says that a slot shows everything up to a version, it does.
//
// At the end of a life, and from states of a search, the watch catches up and labels become right. Then the store is
// the server's share, and the ledger knows no more than it has to.
//
// # What makes a search finite
//
//   - A Scope bounds the changes of the server, and those acts that can always be taken.
//   - Versions and tickets are renamed by rank, since they are only compared. UIDs are renamed, too. What is never
//     looked at again is left out. See fingerprint.go. TestFingerprint shows that worlds which are then equal go on in
//     the same way.
//   - Time does not count: whoever looks something up has waited until every doubt is due.
package streamtest
