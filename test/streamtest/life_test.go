package streamtest_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/test/streamtest"
)

// TestLives lives through many seeds. LIVES says how many of each kind, SEED which one.
func TestLives(t *testing.T) {
	lives := 2000
	if text := os.Getenv("LIVES"); text != "" {
		var err error
		if lives, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, selects := range []bool{false, true} {
		for _, cfg := range []stream.Config{{}, {Namesakes: true}, {Moves: true}} {
			cfg.Selects = selects
			t.Run(fmt.Sprintf("Selects=%v,Moves=%v,Namesakes=%v", selects, cfg.Moves, cfg.Namesakes), func(t *testing.T) {
				t.Parallel()
				failed := 0
				for seed := range uint64(lives) {
					if err := streamtest.Run(seed, cfg, 150); err != nil {
						if failed == 0 {
							t.Error(err)
						}
						failed++
					}
				}
				if failed > 0 {
					t.Logf("%d of %d failed", failed, lives)
				}
			})
		}
	}
}

// TestGraveyard lives through seeds that failed once.
func TestGraveyard(t *testing.T) {
	for _, c := range []struct {
		seed uint64
		cfg  stream.Config
		what string
	}{
		{24007, stream.Config{Moves: true}, "an object came back that had gone on before its slot was listed"},
		{33070, stream.Config{Moves: true, Selects: true}, "a look-up from before the list of a slot counted after it"},
	} {
		if err := streamtest.Run(c.seed, c.cfg, 150); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
