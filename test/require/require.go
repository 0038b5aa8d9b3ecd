// Package require ends a test that cannot go on.
package require

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
)

// T is a test: *testing.T, *testing.B, *rapid.T, or what wraps one.
type T interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// NoError ends a test that has met an error.
func NoError(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ErrorSays ends a test that has not met an error whose text has all of the words; without words, one that has met any.
func ErrorSays(t T, err error, words ...string) {
	t.Helper()
	if (err == nil) != (len(words) == 0) {
		t.Fatalf("error %v, want one that says %q", err, words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("the error does not say %q: %v", word, err)
		}
	}
}

// Receive returns what comes from a channel, or the zero value if the channel is closed. It ends a test that has waited
// for the limit.
func Receive[V any](t T, from <-chan V, limit time.Duration, format string, args ...any) (v V) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v = <-from:
	case <-timer.C:
		t.Fatalf("after %v: %s", limit, fmt.Sprintf(format, args...))
	}
	return v
}

// Eventually tries until there is no error. It ends a test that has tried for the limit.
func Eventually(t T, limit time.Duration, try func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); ; <-tick.C {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", limit, err)
		}
	}
}

// Equal ends a test in which what it made is not what it wants.
func Equal(t T, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}
