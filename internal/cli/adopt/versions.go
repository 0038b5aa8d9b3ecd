package adopt

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/mod/semver"
)

// supported are the versions that Rota works with: the lowest, and the newest that is tested. A test holds them to
// go.mod and go.latest.mod.
var supported = []struct{ module, lowest, newest string }{
	{runtimePath, "v0.22.4", "v0.25.2"},
	{clientGo, "v0.34.1", "v0.37.2"},
}

// versions compares the versions that the go command builds with to those that Rota needs. It knows of replacements and
// workspaces.
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
			r.found(Look, "Version", "go.mod", "%s is replaced by %s, whose version is not known", want.module, is).Instead =
				fmt.Sprintf("see that it has what %s has", want.lowest)
		case semver.Compare(is, want.lowest) < 0:
			r.found(Must, "Version", "go.mod", "%s, below %s", what, want.lowest).Instead =
				fmt.Sprintf("update the operator to %s or newer first", want.lowest)
		case semver.Compare(semver.MajorMinor(is), semver.MajorMinor(want.newest)) > 0:
			r.found(Look, "Version", "go.mod", "%s, newer than what is tested, %s", what, want.newest).Instead =
				"run your tests; refusals at the start would show what does not fit"
		}
	}
	return nil
}
