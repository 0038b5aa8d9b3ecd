// Package dump writes an archive about a rota, for people who examine it elsewhere: the table, Leases, reports, fence,
// events, Pods, metrics and logs, and the output of `rota status` and `rota check`. It never reads Secrets, and leaves
// out the containers' environment and arguments, and annotations.
package dump

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Archive writes a tar.gz. Add and Fail may be called concurrently.
type Archive struct {
	dir string
	at  time.Time

	mu     sync.Mutex
	zip    *gzip.Writer
	tar    *tar.Writer
	unread []Unread
	files  []string
	err    error
}

// Unread is something that could not be read, and why.
type Unread struct {
	What string
	Err  error
}

func (u Unread) String() string {
	return u.What + ": " + strings.Join(strings.Fields(u.Err.Error()), " ")
}

// NewArchive begins an archive. The files added to it have paths below dir, and the modification time at.
func NewArchive(w io.Writer, dir string, at time.Time) *Archive {
	zip := gzip.NewWriter(w)
	return &Archive{dir: dir, at: at, zip: zip, tar: tar.NewWriter(zip)}
}

// Add adds a file. Close returns its errors.
func (a *Archive) Add(name string, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return
	}
	a.files = append(a.files, name)
	header := &tar.Header{Name: path.Join(a.dir, name), Mode: 0o600, Size: int64(len(data)), ModTime: a.at}
	if a.err = a.tar.WriteHeader(header); a.err == nil {
		_, a.err = a.tar.Write(data)
	}
}

// Fail records that something could not be read. It ignores a nil error.
func (a *Archive) Fail(what string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.unread = append(a.unread, Unread{what, err})
	}
}

// Unread returns what could not be read.
func (a *Archive) Unread() []Unread { return a.unread }

// Close adds README.txt, which begins with about, and ends the archive.
func (a *Archive) Close(about string) error {
	var b strings.Builder
	b.WriteString(about + "\n\nFiles:\n")
	slices.Sort(a.files)
	for _, f := range a.files {
		b.WriteString("  " + f + "\n")
	}
	b.WriteString("\nWhat could not be read:\n")
	if len(a.unread) == 0 {
		b.WriteString("  nothing\n")
	}
	for _, u := range a.unread {
		fmt.Fprintf(&b, "  %s\n", u)
	}
	a.Add("README.txt", []byte(b.String()))
	for _, end := range []func() error{a.tar.Close, a.zip.Close} {
		if err := end(); a.err == nil {
			a.err = err
		}
	}
	return a.err
}

// gone reports whether an object does not exist, which is not a failure.
func gone(err error) bool { return apierrors.IsNotFound(err) }
