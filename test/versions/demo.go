package versions

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rota-dev/rota/demo"
)

// Demo builds the demo with the pair and runs it: three members of the example operator, under load, on a control plane
// of their own, through its whole story. The demo's own exit code says whether everything that must be 0 was. flags are
// those of the demo.
func (p Pair) Demo(ctx context.Context, dir string, flags ...string) (*demo.Report, time.Duration, error) {
	bin, err := os.MkdirTemp("", "rota-versions-")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = os.RemoveAll(bin) }()
	program := filepath.Join(bin, "rota-demo")
	if out, err := p.command(ctx, dir, "build", "-o", program, "./cmd/rota-demo").CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("build of the demo: %w:\n%s", err, out)
	}
	if err := p.built(program); err != nil {
		return nil, 0, err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--output", "json"}, flags...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its own children
	cmd.WaitDelay = time.Minute
	began := time.Now()
	text, err := cmd.Output()
	took := time.Since(began)
	if err != nil {
		return nil, took, fmt.Errorf("demo: %w:\n%s", err, text)
	}
	var r demo.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, took, fmt.Errorf("report of the demo: %w", err)
	}
	return &r, took, nil
}

// built checks that a program has exactly the pair's versions.
func (p Pair) built(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	want := map[string]string{controllerRuntime: p.ControllerRuntime, clientGo: p.ClientGo}
	for _, d := range info.Deps {
		if v, ok := want[d.Path]; ok && (d.Version != v || d.Replace != nil) {
			return fmt.Errorf("the demo was built with %s %s, want %s", d.Path, d.Version, v)
		}
		delete(want, d.Path)
	}
	if len(want) > 0 {
		return fmt.Errorf("the demo was built without %v", want)
	}
	return nil
}
