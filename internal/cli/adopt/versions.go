package adopt

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/mod/semver"
)

// supported are the supported versions: the lowest, and the newest that is tested. A test compares them with go.mod and
// go.latest.mod.
var supported = []struct{ module, lowest, newest string }{
	{runtimePath, "v0.22.4", "v0.25.2"},
	{clientGo, "v0.34.1", "v0.37.2"},
}

// versions compares the versions that the go command selects with the versions that Rota needs. It handles replacements
// and workspaces.
func (r *Report) versions(ctx context.Context) error {
	for i, want := range supported {
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-e", "-f",
			"{{if .Replace}}{{or .Replace.Version .Replace.Path}}{{else}}{{.Version}}{{end}}", want.module)
		cmd.Dir = r.Dir
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("cannot list the modules of %s: %w", r.Dir, err)
		}
		is := strings.TrimSpace(string(out))
		*[]*string{&r.ControllerRuntime, &r.ClientGo}[i] = is
		what := fmt.Sprintf("%s is %s", want.module, is)
		switch {
		case is == "":
		case !semver.IsValid(is):
			r.found(Look, "Version", "go.mod", "%s is replaced by %s, whose version is unknown", want.module, is).Instead =
				fmt.Sprintf("make sure that it is compatible with %s", want.lowest)
		case semver.Compare(is, want.lowest) < 0:
			r.found(Must, "Version", "go.mod", "%s, below %s", what, want.lowest).Instead =
				fmt.Sprintf("update the operator to %s or newer first", want.lowest)
		case semver.Compare(semver.MajorMinor(is), semver.MajorMinor(want.newest)) > 0:
			r.found(Look, "Version", "go.mod", "%s, newer than what is tested, %s", what, want.newest).Instead =
				"run your tests; errors at the start show incompatibilities"
		}
	}
	return nil
}
