// Package build compiles rota-kube, the control plane that tests and demos run
// against, from the module in kube/.
//
// It is the only place that knows how: `make bin/rota-kube` runs it through
// controlplane/cmd, the package controlplane calls it when a test needs the binary.
// The first build compiles a whole Kubernetes API server, some 2,500 packages;
// later ones take what changed from Go's cache.
package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// EnvBinary names a ready-made rota-kube to use instead of building one.
const EnvBinary = "ROTA_KUBE"

// Binary returns the path of a rota-kube that is as new as its sources, and
// builds it where there is none, which may take minutes. Several processes may
// call it at once: one builds, the others wait. What goes on is told to w.
func Binary(ctx context.Context, w io.Writer) (string, error) {
	if path := os.Getenv(EnvBinary); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("the binary named by %s: %w", EnvBinary, err)
		}
		return filepath.Abs(path)
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	b := builder{
		kube: filepath.Join(root, "kube"),
		bin:  filepath.Join(root, "bin", "rota-kube"),
		out:  w,
	}
	if b.fresh() {
		return b.bin, nil
	}
	if err := os.MkdirAll(filepath.Dir(b.bin), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(root, "bin", ".rota-kube.lock"), w)
	if err != nil {
		return "", err
	}
	defer unlock()
	if b.fresh() { // someone else built it while we waited
		return b.bin, nil
	}
	if err := b.build(ctx); err != nil {
		return "", fmt.Errorf("build rota-kube: %w", err)
	}
	return b.bin, nil
}

// Root returns the folder of the main module: the nearest one above the
// working directory, else the one this file was compiled from.
func Root() (string, error) {
	var starts []string
	if cwd, err := os.Getwd(); err == nil {
		starts = append(starts, cwd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for {
			b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			// The other modules of the repository lie inside the main one.
			if err == nil && bytes.HasPrefix(b, []byte("module github.com/rota-dev/rota\n")) {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", fmt.Errorf("cannot find the checkout of github.com/rota-dev/rota from %q: run inside it, or set %s to a rota-kube binary", starts, EnvBinary)
}

type builder struct {
	kube string // the module's folder
	bin  string // the binary's path
	out  io.Writer
}

// fresh reports whether the binary is newer than everything it is made of,
// without running the go command.
func (b builder) fresh() bool {
	info, err := os.Stat(b.bin)
	if err != nil {
		return false
	}
	entries, err := os.ReadDir(b.kube)
	if err != nil {
		return false
	}
	for _, e := range entries {
		source, err := e.Info()
		if err != nil || source.ModTime().After(info.ModTime()) {
			return false
		}
	}
	return true
}

func (b builder) build(ctx context.Context) error {
	begin := time.Now()
	// Built aside and renamed, so that nobody runs half a binary. The folder
	// may be left over from a build that was killed.
	aside := filepath.Join(filepath.Dir(b.bin), ".rota-kube-build")
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Mkdir(aside, 0o755); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(aside) }()

	p := newProgress(b.out)
	defer p.stop()
	p.say("building rota-kube, a whole Kubernetes control plane: the first time takes about 5 minutes on 2 cores")
	packages, err := b.goList(ctx, "-deps", ".")
	if err != nil {
		return err
	}
	p.total = bytes.Count(packages, []byte("\n"))
	flags, err := b.linkFlags(ctx)
	if err != nil {
		return err
	}
	tmp := filepath.Join(aside, "rota-kube")
	cmd := b.command(ctx, "build", "-v", "-buildvcs=false", "-ldflags", flags, "-o", tmp, ".")
	cmd.Stderr = p // -v names every package that is compiled
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", errors.Join(err, context.Cause(ctx)), p.tail())
	}
	// A source that changed meanwhile must count as newer.
	if err := os.Chtimes(tmp, begin, begin); err != nil {
		return err
	}
	if err := os.Rename(tmp, b.bin); err != nil {
		return err
	}
	p.say("built %s in %.0f s", b.bin, time.Since(begin).Seconds())
	return nil
}

// linkFlags tells the program which Kubernetes it is, from kube/go.mod. Left
// alone it says v0.0.0, which kubectl refuses to talk to.
func (b builder) linkFlags(ctx context.Context) (string, error) {
	out, err := b.goList(ctx, "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(out))
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 3 {
		return "", fmt.Errorf("k8s.io/kubernetes has the version %q in kube/go.mod, want v1.2.3", version)
	}
	const pkg = "k8s.io/component-base/version."
	flags := []string{"-s", "-w"}
	for _, kv := range [][2]string{{"gitVersion", version}, {"gitMajor", parts[0]}, {"gitMinor", parts[1]}, {"gitTreeState", "clean"}} {
		flags = append(flags, "-X", pkg+kv[0]+"="+kv[1])
	}
	return strings.Join(flags, " "), nil
}

func (b builder) goList(ctx context.Context, args ...string) ([]byte, error) {
	cmd := b.command(ctx, append([]string{"list"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	return out, nil
}

func (b builder) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.kube
	// PWD as exec sets it for Dir; GOWORK: kube stays a module of its own.
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd
}
