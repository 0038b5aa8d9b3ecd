package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Write makes changes. It writes nothing unless all files can be written. An error lists the written files.
func Write(changes []Change) error {
	for _, c := range changes {
		if err := writable(c); err != nil {
			return fmt.Errorf("nothing was written: %s: %w", c.File, err)
		}
	}
	var done []string
	for _, c := range changes {
		if err := os.WriteFile(c.File, c.New, 0o600); err != nil { // the file keeps its mode
			return fmt.Errorf("%s: %w; written are: %s", c.Name, err, strings.Join(done, ", "))
		}
		done = append(done, c.Name)
	}
	return nil
}

// writable returns an error if a file cannot be written, or has changed since it was read.
func writable(c Change) error {
	f, err := os.OpenFile(c.File, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	now, err := io.ReadAll(f)
	if err == nil && !bytes.Equal(now, c.Old) {
		err = errors.New("the file has changed since it was read")
	}
	return errors.Join(err, f.Close())
}
