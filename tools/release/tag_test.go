package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTag: what tag.sh lets be released, and what it calls the newest.
func TestTag(t *testing.T) {
	script, err := filepath.Abs("tag.sh")
	if err != nil {
		t.Fatal(err)
	}
	origin, checkout := t.TempDir(), filepath.Join(t.TempDir(), "checkout")
	in := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	commit := func(tag string) {
		in(origin, "git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", tag)
		in(origin, "git", "tag", tag)
	}
	in(origin, "git", "init", "-q", "-b", "main")
	commit("v0.1.0")
	in(origin, "git", "branch", "release-0.1")
	commit("v0.2.0-rc.1")
	commit("v0.9.0")
	commit("v0.10.0")
	in(origin, "git", "switch", "-q", "release-0.1")
	commit("v0.1.1")
	commit("v0.2.1") // of another minor version than the branch
	in(origin, "git", "switch", "-q", "-c", "side")
	commit("v0.1.2")
	in(origin, "git", "tag", "v1", "main")
	in(".", "git", "clone", "-q", origin, checkout)

	for tag, want := range map[string]string{
		"v0.10.0":     "newest=true\n",
		"v0.9.0":      "newest=false\n",
		"v0.2.0-rc.1": "newest=false\n",
		"v0.1.1":      "newest=false\n",
		"v0.2.1":      "the commit of v0.2.1 is neither on main nor on release-0.2\n",
		"v0.1.2":      "the commit of v0.1.2 is neither on main nor on release-0.1\n",
		"v1":          "the tag v1 is not of the form vX.Y.Z or vX.Y.Z-rc.N\n",
	} {
		cmd := exec.CommandContext(t.Context(), script, tag)
		cmd.Dir = checkout
		out, err := cmd.CombinedOutput()
		if string(out) != want || (err == nil) != strings.HasPrefix(want, "newest") {
			t.Errorf("%s: %v, %q, want %q", tag, err, out, want)
		}
	}
}
