package engine

import "testing"

// Programs can make a zero value of a type that they cannot name.
func TestAdaptNeedsAccess(t *testing.T) {
	zero := func() { call(testRota(t).Adapt) }
	defer func() {
		if recover() == nil {
			t.Error("got the parts without access")
		}
	}()
	zero()
}

func call[A, P any](f func(A) P) {
	var a A
	f(a)
}
