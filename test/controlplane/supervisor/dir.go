package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dirPrefix marks the folders that sweep may remove.
const dirPrefix = "rota-kube-"

const lockName = "supervisor.lock"

// A dir is the folder of one control plane. A lock on a file in it says that its supervisor lives; the kernel drops the
// lock however the supervisor ends.
type dir struct {
	path string
	lock *os.File
}

// newDir makes and locks the folder at path, or a fresh one in the system's temporary folder. A path that exists must
// be empty or left over from a supervisor that is gone, because it is removed at the end.
func newDir(path string) (*dir, error) {
	if path != "" {
		return newNamedDir(path)
	}
	tmp := os.TempDir()
	sweep(tmp)
	// Lock it under another name first: another process's sweep must never see a folder with our prefix that is not locked
	// yet.
	fresh, err := os.MkdirTemp(tmp, ".new-"+dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the control plane: %w", err)
	}
	d := &dir{path: filepath.Join(tmp, dirPrefix+strings.TrimPrefix(filepath.Base(fresh), ".new-"+dirPrefix))}
	if d.lock, err = tryLock(fresh); err == nil {
		err = os.Rename(fresh, d.path)
	}
	if err != nil {
		_ = os.RemoveAll(fresh)
		return nil, fmt.Errorf("lock the folder of the control plane: %w", err)
	}
	return d, nil
}

func newNamedDir(path string) (*dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the control plane: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read the folder of the control plane: %w", err)
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(path, lockName)); err != nil {
			return nil, fmt.Errorf("folder %s is not empty and would be removed at the end: "+
				"name one that is empty or does not exist", path)
		}
	}
	lock, err := tryLock(path)
	if err != nil {
		return nil, fmt.Errorf("folder %s belongs to a running control plane: stop it or name another folder: %w",
			path, err)
	}
	for _, e := range entries {
		if e.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(path, e.Name())); err != nil {
			return nil, fmt.Errorf("clear the left-over folder %s: %w", path, err)
		}
	}
	return &dir{path: path, lock: lock}, nil
}

// remove deletes the folder. The lock goes last, so that nobody else touches the folder meanwhile.
func (d *dir) remove() error {
	err := os.RemoveAll(d.path)
	return errors.Join(err, d.lock.Close())
}

func (d *dir) join(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// sweep removes the folders in tmp whose supervisor was killed. Whatever cannot be locked or removed belongs to someone
// else and stays.
func sweep(tmp string) {
	found, _ := filepath.Glob(filepath.Join(tmp, dirPrefix+"*"))
	for _, path := range found {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(path, lockName)); err != nil {
			continue // not one of ours
		}
		if lock, err := tryLock(path); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
