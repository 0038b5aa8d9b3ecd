package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rota-dev/rota/internal/splitkcm"
)

// writeFolder writes all files below dir or none: it writes a new folder and renames it. It refuses a folder that has
// anything in it, unless overwrite is set and all of it was written by an earlier run.
func writeFolder(dir string, files []splitkcm.File, overwrite bool) (err error) {
	if err := mayReplace(dir, overwrite); err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	fresh, err := os.MkdirTemp(parent, ".rota-split-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) //nolint:errcheck // what stays is hidden, and the error of the work counts
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(fresh, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if filepath.Ext(path) == ".sh" {
			mode = 0o700
		}
		if err := os.WriteFile(path, f.Text, mode); err != nil {
			return err
		}
	}
	if _, err := os.Stat(dir); err != nil {
		return os.Rename(fresh, dir)
	}
	// The old folder takes the place of the fresh one, which the deferred call removes.
	old := fresh + ".old"
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return fmt.Errorf("%w; what was in %s is in %s", err, dir, old)
	}
	return os.RemoveAll(old)
}

func mayReplace(dir string, overwrite bool) error {
	info, err := os.Stat(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no folder", dir)
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !overwrite {
			return fmt.Errorf("%s is not empty: it has %s; name a new folder, or give --overwrite", dir, path)
		}
		text, err := os.ReadFile(path)
		if err == nil && !splitkcm.Written(text) {
			err = fmt.Errorf("%s was not written by this command, so %s is not replaced", path, dir)
		}
		return err
	})
}
