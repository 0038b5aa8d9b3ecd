package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// panicError is the error of a handler that panicked.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprintf("the handler panicked: %v", p.value) }

var errGoexit = errors.New("the handler called runtime.Goexit")

// call calls the handler. It turns a panic, and runtime.Goexit, which ends the goroutine, into an error.
func (r *running) call(ctx context.Context, t *Take) (result Result, err error) {
	done := make(chan struct{})
	go func() { // a separate goroutine, so that Goexit does not end the caller's
		defer close(done)
		err = errGoexit
		defer func() {
			if value := recover(); value != nil {
				result, err = Result{}, &panicError{value}
				r.log.Error(err, "A handler panicked", "key", t.String(), "stack", string(debug.Stack()))
			}
		}()
		result, err = r.handle(ctx, t)
	}()
	<-done
	return result, err
}
