package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// linked is what `go list` tells of a package.
type linked struct {
	Standard bool
	Module   *struct {
		Path, Version, Dir string
		Main               bool
	}
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// writeNotices writes the licenses, and the notices that go with them, of Go and of each module of which a program of a
// release links a package. The licenses ask for it. A module without a license is an error.
func writeNotices(ctx context.Context, w io.Writer, checkout string) error {
	modules := map[string]*linked{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Standard,Module", "./cmd/rota",
			"./examples/website/sharded")
		cmd.Dir, cmd.Stderr = checkout, os.Stderr
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("go list for %s: %w", system, err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			p := &linked{}
			if err := d.Decode(p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if !p.Standard && p.Module != nil && !p.Module.Main {
				modules[p.Module.Path] = p
			}
		}
	}
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	fmt.Fprintf(w, "The programs of Rota contain parts of Go and of %d modules. These are their licenses.\n", len(modules))
	if err := writeLicenses(w, "Go", string(bytes.TrimSpace(goroot))); err != nil {
		return err
	}
	sorted := make([]*linked, 0, len(modules))
	for _, p := range modules {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b *linked) int { return cmp.Compare(a.Module.Path, b.Module.Path) })
	for _, p := range sorted {
		if err := writeLicenses(w, p.Module.Path+" "+p.Module.Version, p.Module.Dir); err != nil {
			return err
		}
	}
	return nil
}

// writeLicenses writes the files in a module's folder that are licenses by their names.
func writeLicenses(w io.Writer, name, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	found := false
	for _, f := range files {
		if f.IsDir() || !licenseFile.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found = true
		if _, err := fmt.Fprintf(w, "\n=== %s: %s\n\n%s\n", name, f.Name(), bytes.TrimSpace(text)); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s has no file with its license in %s: look for it, and teach this command", name, dir)
	}
	return nil
}
