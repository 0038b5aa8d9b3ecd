// Package journal records the start and end of every reconcile of a process in a file of its own, for a checker in
// another process. A record is one write to a file opened for appending, so that SIGKILL loses none that was made.
//
// A record is a line. Numbers count from 1, times are nanoseconds by Now, and "-" stands for nothing:
//
//	S NUMBER TIME NAMESPACE/NAME UID GENERATION EPOCH    a reconcile starts
//	T NUMBER DEADLINE RESOURCEVERSION ATTEMPT            it is about a take
//	E NUMBER TIME                                        it has ended
package journal

import (
	"fmt"
	"os"
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
	// Deadline is when the take of a dispatcher's worker expires, by Now; 0: this is no take. Version is the
	// resourceVersion that came with the take, and Attempt its number.
	Deadline time.Duration
	Version  string
	Attempt  int
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

// Start records the start of a reconcile at the given time. It returns the reconcile's number, and a function to record
// the end. Both panic if they cannot write: nobody could judge the run.
func (w *Writer) Start(
	at time.Duration, key types.NamespacedName, uid string, generation int64, epoch uint64,
) (number uint64, end func()) {
	if uid == "" {
		uid = "-"
	}
	n := w.last.Add(1)
	w.write(fmt.Appendf(nil, "S %d %d %s/%s %s %d %d\n", n, at, key.Namespace, key.Name, uid, generation, epoch))
	return n, func() { w.write(fmt.Appendf(nil, "E %d %d\n", n, Now())) }
}

// Take records that a reconcile is about a take, and when that expires; once more when it was extended.
func (w *Writer) Take(number uint64, deadline time.Duration, version string, attempt int) {
	if version == "" {
		version = "-"
	}
	w.write(fmt.Appendf(nil, "T %d %d %s %d\n", number, deadline, version, attempt))
}

func (w *Writer) write(record []byte) {
	if _, err := w.file.Write(record); err != nil {
		panic(err)
	}
}
