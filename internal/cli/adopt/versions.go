package adopt

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// supported are the versions that Rota works with: the lowest, and the newest that is tested. A test holds them to
// go.mod and go.latest.mod.
var supported = []struct{ module, lowest, newest string }{
	{runtimePath, "v0.22.4", "v0.25.2"},
	{clientGo, "v0.34.1", "v0.37.2"},
}

// versions compares what the module requires with what Rota needs.
func (s *source) versions() {
	name := filepath.Join(s.module.Root, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return // the go command read it a moment ago
	}
	mod, err := modfile.ParseLax(name, data, nil)
	if err != nil {
		return
	}
	for _, want := range supported {
		for _, r := range mod.Require {
			if r.Mod.Path != want.module {
				continue
			}
			at := place{s.module.rel(name), r.Syntax.Start.Line}
			if want.module == runtimePath {
				s.report.ControllerRuntime = r.Mod.Version
			} else {
				s.report.ClientGo = r.Mod.Version
			}
			what := fmt.Sprintf("%s is %s", want.module, r.Mod.Version)
			switch {
			case semver.Compare(r.Mod.Version, want.lowest) < 0:
				s.found(Must, codeVersion, at, "%s, below %s", what, want.lowest).Instead =
					fmt.Sprintf("update the operator to %s or newer first; `go get %s` does it, and what that breaks is to be "+
						"repaired before anything else", want.lowest, rotaPath)
			case semver.Compare(semver.MajorMinor(r.Mod.Version), semver.MajorMinor(want.newest)) > 0:
				s.found(Look, codeVersion, at, "%s, newer than what is tested, %s", what, want.newest).Instead =
					"run your tests; refusals at the start would show what does not fit"
			default:
				s.found(Fine, codeVersion, at, "%s, which is supported", what)
			}
		}
	}
}
