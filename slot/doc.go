// Package slot maps objects to slots. It defines the keys that are hashed, the hashes, and sets of slots.
//
// A slot is one of 2^k equal parts of a rota's 64-bit hash space. A slot's number is the top k bits of its hashes. So
// doubling the number of slots splits every slot in two, and a run of slots is a run of hashes. The package is pure and
// safe for concurrent use.
package slot
