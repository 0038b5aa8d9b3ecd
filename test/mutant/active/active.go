// Package active says which mutant is active in a program that package mutant built. In any other program none is, and
// nothing of the product imports this package: only the copies that package mutant makes of its files ask Is.
package active

// Variable is the environment variable that names the mutant. An ordinary program does not read it.
const Variable = "ROTA_MUTANT"

// name is set by a file that package mutant adds to this package.
var name string

// Is says whether the mutant is active.
func Is(mutant string) bool { return mutant == name }

// Name returns the name of the active mutant; empty: none.
func Name() string { return name }
