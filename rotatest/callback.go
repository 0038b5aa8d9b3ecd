package rotatest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// callback runs code of the user in a goroutine of its own: it may end that goroutine, as t.FailNow does, and it may
// never return. Whoever waits for the result always gets one.
func callback(ctx context.Context, name string, call func() error) error {
	result := make(chan error, 1) // nobody may wait any more
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
	case err := <-result: // it has heeded its context
		return err
	case <-time.After(graceTime):
		return fmt.Errorf("%w, and %s has not returned", context.Cause(ctx), name)
	}
}

// panicError is a panic of a callback. Run cleans up, and then panics with it.
type panicError struct {
	name  string
	value any
	stack string
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%s panicked: %v\n\n%s", e.name, e.value, e.stack)
}

// repanic panics if a callback did.
func repanic(err error) {
	var p *panicError
	if errors.As(err, &p) {
		panic(p)
	}
}
