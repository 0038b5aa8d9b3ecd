//go:build rota_mutants

package mutant

import "os"

var chosen = Mutant(os.Getenv(Variable))

// On says whether the mutant was chosen.
func On(m Mutant) bool { return m == chosen }

// Chosen returns the mutant that was chosen, or None.
func Chosen() Mutant { return chosen }
