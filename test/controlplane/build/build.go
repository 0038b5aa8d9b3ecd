// Package build compiles rota-kube, the control plane that tests and demos run against, from the module in kube/.
//
// It is the only place that knows how. `make kube` runs it through controlplane/cmd, and package controlplane calls it
// when a test needs the binary. The first build compiles a whole Kubernetes API server, some 2,500 packages. Later
// builds compile only what changed; the rest comes from Go's cache.
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
	"slices"
	"strings"
	"time"
)

// EnvBinary names a ready-made rota-kube to use instead of building one.
const EnvBinary = "ROTA_KUBE"

// Binary returns the path of a rota-kube that is as new as its sources: the one that EnvBinary names, or else that of
// the default version, as Of does.
func Binary(ctx context.Context, w io.Writer) (string, error) {
	if path := os.Getenv(EnvBinary); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("the binary named by %s: %w", EnvBinary, err)
		}
		return filepath.Abs(path)
	}
	return Of(ctx, "", w)
}

// Of returns the path of a rota-kube of a minor version of Kubernetes, such as "1.33", that is as new as its sources.
// Empty means that of kube/go.mod. If there is none it builds one, which may take minutes, and writes its progress to
// w. Several processes may call it at once: one builds, the others wait.
func Of(ctx context.Context, version string, w io.Writer) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	b := builder{kube: filepath.Join(root, "kube"), out: w}
	modfile, name, err := modfileOf(b.kube, version)
	if err != nil {
		return "", err
	}
	b.modfile, b.bin = modfile, filepath.Join(root, "bin", name)
	if b.fresh() {
		return b.bin, nil
	}
	if err := os.MkdirAll(filepath.Dir(b.bin), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(root, "bin", "."+name+".lock"), w)
	if err != nil {
		return "", err
	}
	defer unlock()
	if b.fresh() { // another process built it meanwhile
		return b.bin, nil
	}
	if err := b.build(ctx); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	return b.bin, nil
}

// Root returns the folder of the main module: the nearest one above the working directory, else the one this file was
// compiled from.
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
	return "", fmt.Errorf("cannot find the checkout of github.com/rota-dev/rota from %q: run inside it, "+
		"or set %s to a rota-kube binary", starts, EnvBinary)
}

type builder struct {
	kube    string // the module's folder
	modfile string // in that folder
	bin     string // the binary's path
	out     io.Writer
}

// fresh reports whether the binary is newer than everything it is made of, without running the go command.
func (b builder) fresh() bool {
	info, err := os.Stat(b.bin)
	if err != nil {
		return false
	}
	entries, err := os.ReadDir(b.kube)
	if err != nil {
		return false
	}
	sources := []string{b.modfile, strings.TrimSuffix(b.modfile, ".mod") + ".sum"}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && ext != ".mod" && ext != ".sum" {
			sources = append(sources, e.Name())
		}
	}
	for _, name := range sources {
		source, err := os.Stat(filepath.Join(b.kube, name))
		if err != nil || source.ModTime().After(info.ModTime()) {
			return false
		}
	}
	return true
}

func (b builder) build(ctx context.Context) error {
	begin := time.Now()
	// The binary is built in a folder of its own and then renamed, so that nobody runs half a binary. A build that was
	// killed may have left the folder behind.
	aside := filepath.Join(filepath.Dir(b.bin), "."+filepath.Base(b.bin)+"-build")
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Mkdir(aside, 0o755); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(aside) }()

	p := newProgress(b.out)
	defer p.stop()
	p.say("building %s, a whole Kubernetes control plane: the first time takes about 5 minutes on 2 cores",
		filepath.Base(b.bin))
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
	// A source that changed during the build must count as newer than the binary.
	if err := os.Chtimes(tmp, begin, begin); err != nil {
		return err
	}
	if err := os.Rename(tmp, b.bin); err != nil {
		return err
	}
	p.say("built %s in %.0f s", b.bin, time.Since(begin).Seconds())
	return nil
}

// linkFlags sets the Kubernetes version of the binary, from its modfile. Without it the API server reports v0.0.0, and
// kubectl refuses to talk to it.
func (b builder) linkFlags(ctx context.Context) (string, error) {
	out, err := b.goList(ctx, "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(out))
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 3 {
		return "", fmt.Errorf("k8s.io/kubernetes has the version %q in kube/%s, want v1.2.3", version, b.modfile)
	}
	const pkg = "k8s.io/component-base/version."
	flags := []string{"-s", "-w"}
	for _, kv := range [][2]string{
		{"gitVersion", version}, {"gitMajor", parts[0]}, {"gitMinor", parts[1]}, {"gitTreeState", "clean"},
	} {
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
	if b.modfile != "go.mod" {
		args = slices.Insert(args, 1, "-modfile="+b.modfile)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.kube
	// Environ sets PWD to Dir. GOWORK=off keeps kube a module of its own.
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd
}
