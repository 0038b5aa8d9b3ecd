package assets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A builder compiles programs of one version of Kubernetes from the module in kube/. It is the only place that knows
// how. The first build compiles a whole API server, some 2,100 packages. Later builds compile only what changed; the
// rest comes from Go's cache.
type builder struct {
	kube    string // the module's folder
	modfile string // in that folder
	bin     string // the folder for the programs
	out     io.Writer
}

// newBuilder returns the builder of a minor version such as "1.33", or of the one in kube/go.mod if it is empty.
func newBuilder(version string, out io.Writer) (builder, error) {
	root, err := root()
	if err != nil {
		return builder{}, err
	}
	b := builder{kube: filepath.Join(root, "kube"), out: out}
	modfile, name, err := modfileOf(b.kube, version)
	if err != nil {
		return builder{}, err
	}
	b.modfile, b.bin = modfile, filepath.Join(root, "bin", name)
	return b, nil
}

func (b builder) folder() Folder { return Folder(b.bin) }

// make builds the programs that are missing or older than their sources. Several processes may call it at once: one
// builds, the others wait.
func (b builder) make(ctx context.Context, programs ...string) error {
	return b.once(ctx, func() bool { return b.fresh(programs...) }, func() error { return b.build(ctx, programs) })
}

// once calls do unless done reports true, in one process at a time.
func (b builder) once(ctx context.Context, done func() bool, do func() error) error {
	if done() {
		return nil
	}
	if err := os.MkdirAll(b.bin, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(b.bin, ".lock"), b.out)
	if err != nil {
		return err
	}
	defer unlock()
	if done() { // another process has done it meanwhile
		return nil
	}
	return do()
}

// fresh reports whether the programs are newer than everything they are made of, without running the go command.
func (b builder) fresh(programs ...string) bool {
	for _, program := range programs {
		built, err := os.Stat(filepath.Join(b.bin, program))
		if err != nil {
			return false
		}
		sources := []string{b.modfile, strings.TrimSuffix(b.modfile, ".mod") + ".sum", filepath.Join(program, "main.go")}
		if slices.ContainsFunc(sources, func(name string) bool {
			source, err := os.Stat(filepath.Join(b.kube, name))
			return err != nil || source.ModTime().After(built.ModTime())
		}) {
			return false
		}
	}
	return true
}

func (b builder) build(ctx context.Context, programs []string) error {
	begin := time.Now()
	// The programs are built in a folder of their own and then renamed, so that nobody runs half a program. A build that
	// was killed may have left the folder behind.
	aside := filepath.Join(b.bin, ".build")
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Mkdir(aside, 0o755); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(aside) }()

	p := newProgress(b.out, "fetching modules")
	defer p.stop()
	note := "a folder with kube-apiserver and etcd in " + envFolder + " is used instead"
	if slices.Contains(programs, controllerManager) {
		note = "garbage collection, autoscaling and split need it"
	}
	p.say("building %s from source, which takes minutes the first time (%s)", strings.Join(programs, " and "), note)
	var packages []string
	for _, program := range programs {
		packages = append(packages, "./"+program)
	}
	deps, err := b.goList(ctx, append([]string{"-deps"}, packages...)...)
	if err != nil {
		return err
	}
	p.total = bytes.Count(deps, []byte("\n"))
	flags, err := b.linkFlags(ctx)
	if err != nil {
		return err
	}
	// The Makefile builds the demo with the same flags, so that both share what they have in common.
	args := append([]string{"build", "-v", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", flags, "-o", aside},
		packages...)
	cmd := b.command(ctx, args...)
	cmd.Stderr = p // -v names every package that is compiled
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(programs, " and "), errors.Join(err, context.Cause(ctx)), p.tail())
	}
	for _, program := range programs {
		// A source that changed during the build must count as newer than the program.
		path := filepath.Join(aside, program)
		if err := errors.Join(os.Chtimes(path, begin, begin), os.Rename(path, filepath.Join(b.bin, program))); err != nil {
			return err
		}
	}
	b.linkKubectl()
	p.say("built %s in %.0f s", b.bin, time.Since(begin).Seconds())
	return nil
}

// linkKubectl puts the kubectl that is installed, if there is one, where envtest looks for it.
func (b builder) linkKubectl() {
	if path, err := exec.LookPath("kubectl"); err == nil {
		link := filepath.Join(b.bin, "kubectl")
		if err := os.Symlink(path, link); err != nil && !errors.Is(err, fs.ErrExist) {
			_, _ = fmt.Fprintf(b.out, "rota-kube: no link to kubectl: %v\n", err)
		}
	}
}

// linkFlags sets the Kubernetes version of the programs, from their modfile. Without it the API server reports v0.0.0,
// and kubectl refuses to talk to it.
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
	args = slices.Insert(args, 1, "-mod=readonly", "-modfile="+b.modfile) // whatever GOFLAGS has
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.kube
	// Environ sets PWD to Dir. GOWORK=off keeps kube a module of its own.
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if os.Getenv("GOGC") == "" {
		cmd.Env = append(cmd.Env, "GOGC=400") // the compiler's own: takes an eighth of its time off
	}
	return cmd
}
