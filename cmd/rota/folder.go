package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A folderFile is a file to be written, with its path below a folder.
type folderFile struct {
	Path string
	Text []byte
}

// writeFolder writes all files below dir or none: it writes a new folder and renames it. It refuses a folder that has
// anything in it, unless overwrite is set and all of it was written by an earlier run, as written tells of each file.
// Only the user can read the files.
func writeFolder(dir string, files []folderFile, written func([]byte) bool, overwrite bool) (err error) {
	if err := mayReplace(dir, written, overwrite); err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	fresh, err := os.MkdirTemp(parent, ".rota-")
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

func mayReplace(dir string, written func([]byte) bool, overwrite bool) error {
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
		if err == nil && !written(text) {
			err = fmt.Errorf("%s was not written by this command, so %s is not replaced", path, dir)
		}
		return err
	})
}
