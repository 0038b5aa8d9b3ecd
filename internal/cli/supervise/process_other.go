//go:build !linux

package supervise

import (
	"errors"
	"os"
	"syscall"
)

// adopt returns an error: without process groups and signals at a parent's death, a command could outlive its slots.
func adopt() error { return errors.New("rota run needs Linux") }

func passSignals(chan<- os.Signal) {}

type process struct {
	exited, done chan struct{}
	code         int
}

func start(line, *os.File, *os.File) *process { return nil } // adopt refuses before

func (*process) signal(syscall.Signal) {}

func reapOrphans([]*process) {}
