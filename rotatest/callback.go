package rotatest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// callback runs the user's code in a separate goroutine, because the code may end its goroutine, as t.FailNow does, or
// never return. The caller always gets a result.
func callback(ctx context.Context, name string, call func() error) error {
	result := make(chan error, 1) // the caller may have stopped waiting
	go func() {
		err := fmt.Errorf("%s ended its goroutine, as t.FailNow, t.Fatal, t.Skip and require do: return the error instead",
			name)
		defer func() {
			if value := recover(); value != nil {
				err = &panicError{name, value, string(debug.Stack())}
			}
			result <- err
		}()
		returned := call()
		if err = returned; err != nil {
			err = fmt.Errorf("%s: %w", name, returned)
		}
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result: // it returned when its context ended
		return err
	case <-time.After(graceTime):
		return fmt.Errorf("%w, and %s has not returned", context.Cause(ctx), name)
	}
}

// panicError is a panic of a callback. Run cleans up and then panics with it.
type panicError struct {
	name  string
	value any
	stack string
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%s panicked: %v\n\n%s", e.name, e.value, e.stack)
}

// repanic panics if err contains a panic of a callback.
func repanic(err error) {
	var p *panicError
	if errors.As(err, &p) {
		panic(p)
	}
}
