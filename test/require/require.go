// Package require ends a test that cannot go on.
package require

// T is a test: *testing.T, *testing.B, *rapid.T, or what wraps one.
type T interface {
	Helper()
	Fatal(args ...any)
}

// NoError ends a test that has met an error.
func NoError(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
