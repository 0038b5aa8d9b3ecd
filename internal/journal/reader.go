package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Reader follows a journal while it is written. It is for one goroutine.
type Reader struct {
	path, pod string
	offset    int64
	open      map[uint64]int // into reconciles
	all       []Reconcile
}

// NewReader returns a reader of the journal of a process. The file need not exist yet.
func NewReader(path, pod string) *Reader {
	return &Reader{path: path, pod: pod, open: map[uint64]int{}}
}

// Read reads what was written since the last call, and returns all reconciles so far, in the order of their start
// records. The slice is valid until the next call. A last line without end is left for later.
func (r *Reader) Read() ([]Reconcile, error) {
	file, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	if _, err := file.Seek(r.offset, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	for {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		if !found {
			return r.all, nil
		}
		if err := r.parse(strings.Fields(string(line))); err != nil {
			return nil, fmt.Errorf("journal of %s: %q: %w", r.pod, line, err)
		}
		r.offset += int64(len(line)) + 1
		text = rest
	}
}

func (r *Reader) parse(w []string) error {
	var numbers []int64
	fields := func(at ...int) error {
		for _, i := range at {
			n, err := strconv.ParseInt(w[i], 10, 64)
			if err != nil {
				return err
			}
			numbers = append(numbers, n)
		}
		return nil
	}
	switch {
	case len(w) == 7 && w[0] == "S":
		if err := fields(1, 2, 5, 6); err != nil {
			return err
		}
		namespace, name, ok := strings.Cut(w[3], "/")
		if !ok {
			return errors.New("no namespace/name")
		}
		if w[4] == "-" {
			w[4] = ""
		}
		r.open[uint64(numbers[0])] = len(r.all)
		r.all = append(r.all, Reconcile{
			Pod: r.pod, Key: types.NamespacedName{Namespace: namespace, Name: name}, UID: w[4], Generation: numbers[2],
			Epoch: uint64(numbers[3]), Start: time.Duration(numbers[1]),
		})
	case len(w) == 3 && w[0] == "E":
		if err := fields(1, 2); err != nil {
			return err
		}
		i, ok := r.open[uint64(numbers[0])]
		if !ok {
			return errors.New("the end of a reconcile that did not start")
		}
		delete(r.open, uint64(numbers[0]))
		r.all[i].End = time.Duration(numbers[1])
	default:
		return errors.New("not a record")
	}
	return nil
}
