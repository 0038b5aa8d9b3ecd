package queue_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/dispatch/queue"
)

func TestMaxTakenIsOfAKind(t *testing.T) {
	for kind, n := range map[string]int{"Pod": -1, "Job": 1} {
		cfg := queue.Config{Slots: 1, Kinds: []string{"Pod"}, MaxTaken: map[string]int{kind: n}}
		if _, err := queue.New(cfg); err == nil {
			t.Errorf("%d of %s: no error", n, kind)
		}
	}
}
