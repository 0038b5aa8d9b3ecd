// Package versions runs the project's tests with each pair of controller-runtime and client-go that Rota works with,
// and the demo with some. Each pair has a modfile: go.mod has the lowest versions, go.latest.mod the newest, and
// tools/versions those between.
package versions

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	controllerRuntime = "sigs.k8s.io/controller-runtime"
	clientGo          = "k8s.io/client-go"
)

// Pair is what a modfile names.
type Pair struct {
	Modfile                     string
	ControllerRuntime, ClientGo string
	// Go is the lowest version of Go that can build with these. Toolchain is the one that does, "": that of this program.
	Go, Toolchain string
}

func (p Pair) String() string {
	return fmt.Sprintf("controller-runtime %s, client-go %s", p.ControllerRuntime, p.ClientGo)
}

// Pairs returns the pairs of a checkout, from the lowest to the newest. The lowest is built with the lowest Go, which
// the go command downloads.
func Pairs(ctx context.Context, dir string) ([]Pair, error) {
	between, err := filepath.Glob(filepath.Join(dir, "tools", "versions", "*.mod"))
	if err != nil {
		return nil, err
	}
	var out []Pair
	for _, file := range slices.Concat([]string{"go.mod"}, between, []string{"go.latest.mod"}) {
		if filepath.IsAbs(file) {
			if file, err = filepath.Rel(dir, file); err != nil {
				return nil, err
			}
		}
		p, err := read(ctx, dir, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b Pair) int {
		order, _ := version.MustParseSemantic(a.ControllerRuntime).Compare(b.ControllerRuntime)
		return order
	})
	out[0].Toolchain = "go" + out[0].Go
	return out, nil
}

func read(ctx context.Context, dir, file string) (Pair, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "edit", "-json", file)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return Pair{}, err
	}
	var mod struct {
		Go      string
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &mod); err != nil {
		return Pair{}, err
	}
	p := Pair{Modfile: file, Go: mod.Go}
	for _, r := range mod.Require {
		switch r.Path {
		case controllerRuntime:
			p.ControllerRuntime = r.Version
		case clientGo:
			p.ClientGo = r.Version
		}
	}
	if _, err := version.ParseSemantic(p.ControllerRuntime); err != nil {
		return Pair{}, err
	}
	return p, nil
}

// command returns a go command that builds with the pair. -modfile does not work with a go.work above.
func (p Pair) command(ctx context.Context, dir, verb string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", append([]string{verb, "-modfile=" + p.Modfile}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if p.Toolchain != "" {
		cmd.Env = append(cmd.Env, "GOTOOLCHAIN="+p.Toolchain)
	}
	return cmd
}

// Vet compiles all packages and their tests, and returns what go vet says about them.
func (p Pair) Vet(ctx context.Context, dir string) error {
	if out, err := p.command(ctx, dir, "vet", "./...").CombinedOutput(); err != nil {
		return fmt.Errorf("go vet: %w:\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
