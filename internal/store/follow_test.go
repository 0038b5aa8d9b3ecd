package store

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	for _, test := range []struct {
		failures int
		random   float64
		want     time.Duration
	}{
		{0, 0, 25 * time.Millisecond},
		{0, 0.5, 50 * time.Millisecond},
		{3, 0.5, 400 * time.Millisecond},
		{7, 0.5, 2 * time.Second},
		{1 << 40, 0, time.Second},
	} {
		if got := backoff(test.failures, test.random); got != test.want {
			t.Errorf("backoff(%d, %v) = %v, want %v", test.failures, test.random, got, test.want)
		}
	}
}
