package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// folderFile is a file to write, with its path relative to the folder.
type folderFile struct {
	Path string
	Text []byte
}

// outFolder holds the flags --out and --overwrite.
type outFolder struct {
	dir       string
	overwrite bool
}

// flags adds the flags. otherwise is the help for a missing --out.
func (o *outFolder) flags(f *pflag.FlagSet, otherwise string) {
	f.StringVar(&o.dir, "out", "", "`folder` to write to; it must be empty or not exist"+otherwise)
	f.BoolVar(&o.overwrite, "overwrite", false, "replace a folder that an earlier run wrote")
}

func (o *outFolder) check() error {
	if o.overwrite && o.dir == "" {
		return errors.New("--overwrite needs --out")
	}
	return nil
}

// writeFiles writes files and prints their names. written is as for writeFolder.
func writeFiles[F ~struct {
	Path string
	Text []byte
}](w io.Writer, o outFolder, files []F, written func([]byte) bool) error {
	list := make([]folderFile, 0, len(files))
	for _, f := range files {
		list = append(list, folderFile(f))
	}
	if err := writeFolder(o.dir, list, written, o.overwrite); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	for _, f := range list {
		_, _ = fmt.Fprintf(w, "wrote %s/%s\n", strings.TrimSuffix(o.dir, "/"), f.Path)
	}
	return nil
}

// writeFolder writes all files below dir or none: it writes a new folder and renames it. It refuses a folder that is
// not empty, unless overwrite is set and written returns true for each file in it. Only the user can read the files.
func writeFolder(dir string, files []folderFile, written func([]byte) bool, overwrite bool) (err error) {
	if err := mayReplace(dir, written, overwrite); err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	fresh, err := os.MkdirTemp(parent, ".rota-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) //nolint:errcheck // leftovers are hidden, and the write's error matters more
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
	// Move the old folder to where the deferred call removes it.
	old := fresh + ".old"
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return fmt.Errorf("%w; the contents of %s are now in %s", err, dir, old)
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
		return fmt.Errorf("%s is not a folder", dir)
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !overwrite {
			return fmt.Errorf("%s is not empty: it contains %s; use a new folder, or --overwrite", dir, path)
		}
		text, err := os.ReadFile(path)
		if err == nil && !written(text) {
			err = fmt.Errorf("%s was not written by this command, so %s is not replaced", path, dir)
		}
		return err
	})
}
