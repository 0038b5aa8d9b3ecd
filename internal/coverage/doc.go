// Package coverage shows whether every object is held by exactly one live member that moves forward (rule R14).
//
// Each member publishes a Report: of every slot that it has open, how many objects of each kind its caches hold, and
// the XOR of their keys' hashes. A Census is the same of the whole kind, from a consistent list. Compare puts the two
// and the table side by side.
//
// Reports and lists are from different moments, and objects come and go between. A finding counts only once it lasts,
// by newer reports of the members that it names: see Tracker. In a slot in which objects are created and deleted all
// the time that may take several comparisons.
//
// A report has a bounded size: with very many kinds and slots one digest is about several slots.
package coverage
