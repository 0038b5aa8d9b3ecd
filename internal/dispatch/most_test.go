package dispatch_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/dispatch"
)

func TestMaxTakenIsOfAKind(t *testing.T) {
	for kind, n := range map[string]int{"Pod": -1, "Job": 1} {
		cfg := dispatch.Config{Slots: 1, Kinds: []string{"Pod"}, MaxTaken: map[string]int{kind: n}}
		if _, err := dispatch.New(cfg); err == nil {
			t.Errorf("%d of %s: no error", n, kind)
		}
	}
}
