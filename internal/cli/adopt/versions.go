package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// supported are the versions that Rota works with: the lowest, and the newest that is tested. A test holds them to
// go.mod and go.latest.mod.
var supported = []struct{ module, lowest, newest string }{
	{runtimePath, "v0.22.4", "v0.25.2"},
	{clientGo, "v0.34.1", "v0.37.2"},
}

// selected is the version of a module that the go command builds with.
type selected struct {
	// version is that of what takes its place, if it is replaced; empty: a folder takes its place.
	version string
	// replaced says by what it is replaced; empty: it is not.
	replaced string
}

// selectedIn asks the go command which versions are built with in a folder: it knows of replacements and workspaces.
// Modules that are not built with are not in the answer.
func selectedIn(ctx context.Context, dir string) (map[string]selected, error) {
	args := []string{"list", "-m", "-e", "-json"}
	for _, want := range supported {
		args = append(args, want.module)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the modules of %s: %w: %s", dir, err, strings.TrimSpace(stderr.String()))
	}
	out := map[string]selected{}
	for dec := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var m struct {
			Path, Version string
			Replace       *struct{ Path, Version string }
		}
		switch err := dec.Decode(&m); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("modules of %s: %w", dir, err)
		case m.Replace != nil:
			by := m.Replace.Path
			if m.Replace.Version != "" {
				by += " " + m.Replace.Version
			}
			out[m.Path] = selected{m.Replace.Version, by}
		case m.Version != "":
			out[m.Path] = selected{version: m.Version}
		}
	}
}

// versions compares the versions that the module is built with to those that Rota needs.
func (s *source) versions() {
	name := filepath.Join(s.module.Root, "go.mod")
	mod := &modfile.File{}
	if data, err := os.ReadFile(name); err == nil { // the go command read it a moment ago
		if parsed, err := modfile.ParseLax(name, data, nil); err == nil {
			mod = parsed
		}
	}
	for _, want := range supported {
		is, ok := s.module.selected[want.module]
		if !ok {
			continue
		}
		at := place{File: s.module.rel(name)}
		for _, r := range mod.Require {
			if r.Mod.Path == want.module {
				at.Line = r.Syntax.Start.Line
			}
		}
		said := is.version
		if said == "" {
			said = is.replaced
		}
		if want.module == runtimePath {
			s.report.ControllerRuntime = said
		} else {
			s.report.ClientGo = said
		}
		what := fmt.Sprintf("%s is %s", want.module, is.version)
		if is.replaced != "" {
			what = fmt.Sprintf("%s is replaced by %s", want.module, is.replaced)
		}
		switch {
		case is.version == "":
			s.found(Look, codeVersion, at, "%s, whose version is not known", what).Instead =
				fmt.Sprintf("see that it has what %s has", want.lowest)
		case semver.Compare(is.version, want.lowest) < 0:
			s.found(Must, codeVersion, at, "%s, below %s", what, want.lowest).Instead =
				fmt.Sprintf("update the operator to %s or newer first; `go get %s` does it, but for replacements, and what that "+
					"breaks is to be repaired before anything else", want.lowest, rotaPath)
		case semver.Compare(semver.MajorMinor(is.version), semver.MajorMinor(want.newest)) > 0:
			s.found(Look, codeVersion, at, "%s, newer than what is tested, %s", what, want.newest).Instead =
				"run your tests; refusals at the start would show what does not fit"
		default:
			s.found(Fine, codeVersion, at, "%s, which is supported", what)
		}
	}
}
