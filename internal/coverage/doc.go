// Package coverage checks whether every object is held by exactly one live member that makes progress (rule R14).
//
// Each member publishes a Report. For every open slot and kind, it contains the number of objects in the member's
// caches and the XOR of their keys' hashes. A Census contains the same for all existing objects of a kind, from a
// consistent list. Compare compares these with each other and with the table.
//
// Reports and lists are from different moments, and objects come and go in between. A finding counts only if it lasts
// and newer reports of its members confirm it; see Tracker. For a slot in which objects are created and deleted all the
// time, that may take several comparisons.
//
// A report has a bounded size: with very many kinds and slots, one digest covers several slots.
package coverage
