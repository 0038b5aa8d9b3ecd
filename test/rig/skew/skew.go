// Package skew has the programs of the releases before this one, built from the repository's history, for the tests of
// versions that work together (docs/versions.md).
package skew

import (
	"context"
	_ "embed" // the releases
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed BEFORE
var before string

// Release is a commit that stands for a release.
type Release struct {
	// Commit is its full hash, and About what it stands for.
	Commit, About string
}

// Before are the releases before this one, the nearest first.
func Before() ([]Release, error) { return parse(before) }

// short is how many digits of a hash name a folder.
const short = 12

var hash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// parse reads the file BEFORE: a line for each release, with comments.
func parse(text string) (all []Release, err error) {
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		commit, about, _ := strings.Cut(line, " ")
		if !hash.MatchString(commit) || about == "" {
			return nil, fmt.Errorf("test/rig/skew/BEFORE, line %d: %q: want the 40 digits of a commit, and what it stands for",
				n+1, line)
		}
		all = append(all, Release{commit, about})
	}
	if len(all) == 0 {
		return nil, errors.New("test/rig/skew/BEFORE names no commit")
	}
	return all, nil
}

// Build are a release's programs.
type Build struct {
	Release
	// Rota, Demo and Operator are the paths of its programs rota, rota-demo and the example operator.
	Rota, Demo, Operator string
}

// Programs returns the programs of a release. They are built from the history of the repository at root the first time,
// and kept in its folder bin.
func Programs(ctx context.Context, root string, r Release) (*Build, error) {
	root, err := filepath.Abs(root) // programs are built in another folder
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "bin", "skew-"+r.Commit[:short])
	b := &Build{r, filepath.Join(dir, "rota"), filepath.Join(dir, "rota-demo"), filepath.Join(dir, "sharded")}
	if _, err := os.Stat(b.Operator); err == nil {
		return b, nil // the folder was renamed when all were there
	}
	temp, err := os.MkdirTemp("", "rota-skew-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	source, archive := filepath.Join(temp, "source"), filepath.Join(temp, "source.tar")
	if err := errors.Join(os.Mkdir(source, 0o750), os.MkdirAll(filepath.Dir(dir), 0o750)); err != nil {
		return nil, err
	}
	if err := run(ctx, root, "git", "archive", "--format=tar", "--output="+archive, r.Commit); err != nil {
		return nil, fmt.Errorf("commit %s (%s) is not in this clone; `git fetch --unshallow` gets the history of a shallow "+
			"clone: %w", r.Commit, r.About, err)
	}
	if err := run(ctx, source, "tar", "-xf", archive); err != nil {
		return nil, err
	}
	built, err := os.MkdirTemp(filepath.Dir(dir), "skew-") // on the same file system as where they are kept
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(built) }() // if it was not renamed
	// The paths of sources are left out, so that what was compiled before is found again whatever the folder.
	err = run(ctx, source, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", built,
		"./cmd/rota", "./cmd/rota-demo", "./examples/website/sharded")
	if err != nil {
		return nil, fmt.Errorf("commit %s (%s): %w", r.Commit, r.About, err)
	}
	return b, errors.Join(os.RemoveAll(dir), os.Rename(built, dir))
}

// run runs a command in a folder. What it prints is in the error.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // git, tar and go
	cmd.Dir = dir
	// The release has a modfile of its own, and is no part of a workspace around the folder.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
