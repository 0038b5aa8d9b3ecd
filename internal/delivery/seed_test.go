package delivery_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// seedVariable is the environment variable by which a random test is repeated.
const seedVariable = "ROTA_SEED"

// runsVariable is the environment variable that says how many new seeds a random test tries.
const runsVariable = "ROTA_RUNS"

// seedsOf returns the seeds of a random test: the one of seedVariable, or as many new ones as runsVariable says, or the
// corpus. As with `go test` and fuzz targets, new inputs are for those who look for bugs, and the corpus for everybody.
func seedsOf(t *testing.T, corpus ...uint64) []uint64 {
	t.Helper()
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		return []uint64{seed}
	}
	text := os.Getenv(runsVariable)
	if text == "" {
		return corpus
	}
	runs, err := strconv.Atoi(text)
	if err != nil || runs < 1 {
		t.Fatalf("%s=%q: must be a whole number of at least 1", runsVariable, text)
	}
	seeds := make([]uint64, runs)
	for i := range seeds {
		seeds[i] = rand.Uint64() >> 1
	}
	return seeds
}
