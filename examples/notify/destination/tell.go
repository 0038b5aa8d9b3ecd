package destination

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Receiver is what Tell needs of a Destination.
type Receiver interface {
	Name() string
	Wait(object string) time.Duration
	Send(ctx context.Context, object string, m Message) error
	Accepted(id string) bool
	Dropped(cause string)
}

var _ Receiver = (*Destination)(nil)

// Tell sends a message, unless it has to wait for its turn. It returns 0 if the destination need not be told any more.
// Failures of the destination are no errors: they are logged, and waited for. what names the message in the log. The
// error is that of the context.
func Tell(ctx context.Context, log klog.Logger, to Receiver, turn, what string, m Message) (time.Duration, error) {
	if id, _ := m.Head(); to.Accepted(id) {
		return 0, nil // and that could not be written down
	}
	if wait := to.Wait(turn); wait > 0 {
		return wait, nil
	}
	err := to.Send(ctx, turn, m)
	var refused *RefusedError
	switch {
	case err == nil:
		log.Info("Told")
		return 0, nil
	case errors.As(err, &refused):
		log.Error(err, what+" is dropped")
		to.Dropped(Refused)
		return 0, nil
	case ctx.Err() != nil:
		return 0, fmt.Errorf("tell %s: %w", to.Name(), err)
	}
	wait := max(time.Millisecond, to.Wait(turn))
	log.Error(err, "Cannot tell; trying again", "after", wait.Round(time.Millisecond).String())
	return wait, nil
}
