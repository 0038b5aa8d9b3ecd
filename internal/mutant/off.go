//go:build !rota_mutants

package mutant

// On says whether the mutant was chosen: never, in this build.
func On(Mutant) bool { return false }

// Chosen returns the mutant that was chosen: None, in this build.
func Chosen() Mutant { return None }
