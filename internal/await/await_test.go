package await_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/await"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := await.Sleep(t.Context(), time.Minute); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := await.Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begun) != time.Minute+time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if err := await.Sleep(ctx, 0); err == nil {
			t.Error("no error although the context has ended")
		}
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, n := time.Now(), 0
		err := await.Until(t.Context(), time.Second, time.Minute, func() string {
			if n++; n < 4 {
				return "not yet"
			}
			return ""
		})
		if err != nil || time.Since(begun) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if err := await.Until(t.Context(), time.Second, time.Minute, func() string { return "never" }); err == nil ||
			!strings.Contains(err.Error(), "after 1m0s: never") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := await.Until(ctx, time.Second, time.Minute, func() string { return "never" }); !errors.Is(err,
			context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
