package writes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/gate"
)

// A write of a reconcile whose slot is already on its way knows of the time at which it is given up, so that its end
// stops that, too.
func TestWriteBegunInAHandover(t *testing.T) {
	for range 2000 {
		synctest.Test(t, func(t *testing.T) {
			parent, end := context.WithCancelCause(t.Context())
			end(gate.ErrHandover)
			s := newSending(parent, Limits{SendWithin: time.Second, Timeout: time.Second, Patience: time.Second})
			synctest.Wait()
			s.mu.Lock()
			n := len(s.cleanup)
			s.mu.Unlock()
			if n != 3 || s.ctx.Err() != nil {
				t.Fatalf("%d functions end it, want 3; context: %v", n, s.ctx.Err())
			}
			s.over()
		})
	}
}
