package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Write makes changes. Nothing is written unless all files can be; each is replaced at once. An error says what is
// written.
func Write(changes []Change) error {
	fresh := make([]string, len(changes))
	defer func() {
		for _, name := range fresh {
			_ = os.Remove(name) // a change that was made has none
		}
	}()
	for i, c := range changes {
		var err error
		if fresh[i], err = stage(c); err != nil {
			return fmt.Errorf("nothing was written: %s: %w", c.File, err)
		}
	}
	var done []string
	for i, c := range changes {
		target, err := filepath.EvalSymlinks(c.File)
		if err == nil {
			err = os.Rename(fresh[i], target)
		}
		if err != nil {
			return fmt.Errorf("%s: %w; written are: %s", c.Name, err, strings.Join(done, ", "))
		}
		done = append(done, c.Name)
	}
	return nil
}

// stage writes the new text beside a file that can be replaced: it may be written, and is what it was when it was read.
func stage(c Change) (fresh string, err error) {
	target, err := filepath.EvalSymlinks(c.File)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(target, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	now, readErr := os.ReadFile(target)
	if err := errors.Join(err, f.Close(), readErr); err != nil {
		return "", err
	}
	if !bytes.Equal(now, c.Old) {
		return "", errors.New("the file has changed since it was read")
	}
	if f, err = os.CreateTemp(filepath.Dir(target), ".rota-adopt-*"); err != nil {
		return "", err
	}
	_, err = f.Write(c.New)
	return f.Name(), errors.Join(err, f.Chmod(info.Mode().Perm()), f.Close())
}
