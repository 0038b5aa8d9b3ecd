// Package mutant builds bugs into the product, one at a time, and runs the check that must find each: a check that has
// never failed may be unable to fail. The bugs are the rows of one table.
package mutant
