// Package journal records the start and end of every reconcile of a process in a file of its own, for a checker in
// another process. A record is one write to a file opened for appending, so that SIGKILL loses none that was made.
package journal

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Reconcile is one reconcile.
type Reconcile struct {
	// Pod is the process's name, unique in a run.
	Pod string
	Key types.NamespacedName
	// UID and Generation are those of the object that the reconcile found, or "" and 0: it is gone.
	UID        string
	Generation int64
	// Epoch is the slot's, as the reconcile's context had it.
	Epoch uint64
	// Start and End are by Now. End is 0 while there is no end record.
	Start, End time.Duration
}

// A Writer appends to a journal. Its methods may be called concurrently.
type Writer struct {
	file *os.File
	last atomic.Uint64
}

// Create makes the journal of a process.
func Create(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create the journal: %w", err)
	}
	return &Writer{file: file}, nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Start records the start of a reconcile at the given time, and returns its number for End. An error means that the
// run cannot be judged.
func (w *Writer) Start(at time.Duration, key types.NamespacedName, uid string, generation int64, epoch uint64) (uint64, error) {
	if uid == "" {
		uid = "-"
	}
	n := w.last.Add(1)
	b := make([]byte, 0, 160)
	b = append(b, "S "...)
	b = strconv.AppendUint(b, n, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(at), 10)
	b = append(b, ' ')
	b = append(append(append(b, key.Namespace...), '/'), key.Name...)
	b = append(append(b, ' '), uid...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, generation, 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, epoch, 10)
	_, err := w.file.Write(append(b, '\n'))
	return n, err
}

// End records the end of a reconcile, now.
func (w *Writer) End(n uint64) error {
	b := make([]byte, 0, 48)
	b = append(b, "E "...)
	b = strconv.AppendUint(b, n, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(Now()), 10)
	_, err := w.file.Write(append(b, '\n'))
	return err
}
