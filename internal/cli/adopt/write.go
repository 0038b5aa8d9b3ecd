package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// staged is a change whose new text is in a file beside the one that it is for.
type staged struct {
	Change
	// target is the file that is replaced: that to which File leads, if it is a link.
	target, fresh string
}

// Write makes changes. Nothing is written unless all files can be; each is replaced at once. An error says what is
// written.
func Write(changes []Change) error {
	var all []staged
	defer func() {
		for _, s := range all {
			_ = os.Remove(s.fresh) // of a change that was made there is none
		}
	}()
	for _, c := range changes {
		s, err := stage(c)
		if err != nil {
			return fmt.Errorf("nothing was written: %w", err)
		}
		all = append(all, s)
	}
	return replace(all)
}

// stage writes the new text beside a file that can be replaced: it is what it was when it was read.
func stage(c Change) (s staged, err error) {
	s = staged{Change: c, target: c.File}
	mode := os.FileMode(0o644) // as the operator's other files
	if c.Old == nil {
		if _, err := os.Lstat(c.File); err == nil {
			return s, fmt.Errorf("%s: %w", c.File, os.ErrExist)
		}
	} else {
		if s.target, err = filepath.EvalSymlinks(c.File); err != nil {
			return s, err
		}
		f, err := os.OpenFile(s.target, os.O_RDWR, 0) // a file that may not be written is not to be replaced, either
		if err != nil {
			return s, err
		}
		info, err := f.Stat()
		if err := errors.Join(err, f.Close()); err != nil {
			return s, err
		}
		mode = info.Mode().Perm()
		if now, err := os.ReadFile(s.target); err != nil {
			return s, err
		} else if !bytes.Equal(now, c.Old) {
			return s, fmt.Errorf("%s has changed since it was read", c.File)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(s.target), ".rota-adopt-*")
	if err != nil {
		return s, err
	}
	s.fresh = f.Name()
	_, err = f.Write(c.New)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return s, errors.Join(err, os.Remove(s.fresh))
	}
	return s, nil
}

// replace puts the new texts in place of the files.
func replace(all []staged) error {
	for i, s := range all {
		var err error
		if s.Old == nil {
			err = os.Link(s.fresh, s.target) // which a file that is there refuses
		} else {
			err = os.Rename(s.fresh, s.target)
		}
		if err != nil {
			var done []string
			for _, s := range all[:i] {
				done = append(done, s.Name)
			}
			if len(done) == 0 {
				return fmt.Errorf("nothing was written: %w", err)
			}
			return fmt.Errorf("%s: written are %s, and nothing else: %w", s.Name, strings.Join(done, ", "), err)
		}
	}
	return nil
}
