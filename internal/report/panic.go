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

// Caught turns a panic of the function that defers it into its error.
func Caught(err *error) {
	if value := recover(); value != nil {
		*err = &crash{value, string(debug.Stack())}
	}
}

// StackOf returns keys and values for the log: the stack, if err is a panic.
func StackOf(err error) []any {
	var c *crash
	if !errors.As(err, &c) {
		return nil
	}
	return []any{"stack", c.stack}
}
