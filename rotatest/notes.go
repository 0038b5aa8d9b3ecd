package rotatest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// notes are lines from the members' logs.
type notes struct {
	mu sync.Mutex
	// advice holds the lines that contain a place in the operator, each once. last holds the last lines.
	advice, last []string
}

const lastNotes = 12

func (n *notes) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, text, ok := strings.Cut(line, `"msg"=`); ok && strings.Contains(line, `"place"=`) &&
		len(n.advice) < lastNotes && !slices.Contains(n.advice, text) {
		n.advice = append(n.advice, text)
	}
	if n.last = append(n.last, line); len(n.last) > 10*lastNotes {
		n.last = slices.Clone(n.last[len(n.last)-lastNotes:])
	}
}

func (n *notes) hints() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.advice, "\n")
}

func (r *run) logger(name string) logr.Logger {
	return funcr.New(func(prefix, args string) { r.log.add(prefix + " " + args) },
		funcr.Options{LogTimestamp: true}).WithName(name)
}

// withNotes adds the last lines of the members' logs to an error.
func (r *run) withNotes(err error) error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	last := r.log.last[max(0, len(r.log.last)-lastNotes):]
	if len(last) == 0 {
		return err
	}
	return fmt.Errorf("%w\nThe last lines of the members' logs:\n%s", err, indent(strings.Join(last, "\n")))
}
