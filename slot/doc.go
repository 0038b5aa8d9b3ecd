// Package slot maps objects to slots: the keys that are hashed, the hashes, and sets of slots as ranges.
//
// A slot is one of 2^k equal parts of the 64-bit hash space of a rota. Slot numbers are the top k bits of the hash, so
// that doubling the number of slots splits every slot in two, and a run of slots is a run of hashes. Everything here is
// pure and safe for concurrent use.
package slot
