// Package await waits for a time or for a condition.
package await

import (
	"context"
	"fmt"
	"time"
)

// Sleep returns after d, or ctx's error if it ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Until calls check every period until it returns "". After limit it returns an error with check's last result.
func Until(ctx context.Context, period, limit time.Duration, check func() string) error {
	deadline := time.Now().Add(limit)
	for {
		problem := check()
		if problem == "" {
			return nil
		}
		if err := Sleep(ctx, period); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %s", limit, problem)
		}
	}
}
