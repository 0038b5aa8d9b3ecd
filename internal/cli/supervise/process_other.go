//go:build !linux

package supervise

import (
	"errors"
	"os"
	"time"
)

// adopt returns an error: without process groups and signals at a parent's death, a command could outlive its slots.
func adopt() error { return errors.New("rota run needs Linux") }

func monotonic() time.Duration { return 0 }

func passSignals(chan<- os.Signal) {}

func start(line, *os.File, *os.File) program { return nil } // adopt refuses before

func reapOrphans([]program) {}
