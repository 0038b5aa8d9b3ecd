package ctrlrt

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota"
)

func TestReadinessAsksWhetherAnythingEverWorked(t *testing.T) {
	broken := errors.New("backend is down")
	later := rota.Failing{Controller: "later", For: time.Minute, Reconciles: 7, Err: broken}
	never := rota.Failing{Controller: "never", For: time.Minute, Reconciles: 7, Never: true, Err: broken}
	if err := neverWorked([]rota.Failing{later}); err != nil {
		t.Errorf("%v, want none: it worked before, and what it needs may be broken for all", err)
	}
	err := neverWorked([]rota.Failing{later, never})
	if err == nil {
		t.Fatal("ready, although nothing has ever been reconciled")
	}
	for _, word := range []string{"controller never", "all 7 reconciles", "since the start", "backend is down"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}
