package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
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
		if err := r.parse(string(line)); err != nil {
			return nil, fmt.Errorf("journal of %s: %q: %w", r.pod, line, err)
		}
		r.offset += int64(len(line)) + 1
		text = rest
	}
}

func (r *Reader) parse(line string) error {
	var n uint64
	switch line[:min(2, len(line))] {
	case "S ":
		it, key := Reconcile{Pod: r.pod}, ""
		_, err := fmt.Sscanf(line, "S %d %d %s %s %d %d", &n, &it.Start, &key, &it.UID, &it.Generation, &it.Epoch)
		if err != nil {
			return err
		}
		var ok bool
		if it.Key.Namespace, it.Key.Name, ok = strings.Cut(key, "/"); !ok {
			return errors.New("no namespace/name")
		}
		if it.UID == "-" {
			it.UID = ""
		}
		r.open[n] = len(r.all)
		r.all = append(r.all, it)
	case "T ":
		var deadline time.Duration
		var version string
		var attempt int
		if _, err := fmt.Sscanf(line, "T %d %d %s %d", &n, &deadline, &version, &attempt); err != nil {
			return err
		}
		i, ok := r.open[n]
		if !ok {
			return errors.New("the take of a reconcile that is not under way")
		}
		if version == "-" {
			version = ""
		}
		r.all[i].Deadline, r.all[i].Version, r.all[i].Attempt = deadline, version, attempt
	case "E ":
		var end time.Duration
		if _, err := fmt.Sscanf(line, "E %d %d", &n, &end); err != nil {
			return err
		}
		i, ok := r.open[n]
		if !ok {
			return errors.New("the end of a reconcile that did not start")
		}
		delete(r.open, n)
		r.all[i].End = end
	default:
		return errors.New("not a record")
	}
	return nil
}
