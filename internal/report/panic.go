package report

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// crash is a panic of a shadow.
type crash struct {
	value any
	stack string
}

func (c *crash) Error() string { return fmt.Sprintf("panic: %v", c.value) }

// Caught recovers from a panic and stores it as an error. Defer it.
func Caught(err *error) {
	if value := recover(); value != nil {
		*err = &crash{value, string(debug.Stack())}
	}
}

// StackOf returns the stack as keys and values for the log, if err is a panic.
func StackOf(err error) []any {
	var c *crash
	if !errors.As(err, &c) {
		return nil
	}
	return []any{"stack", c.stack}
}
