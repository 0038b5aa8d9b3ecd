package assets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	// setupEnvtest fetches programs that kubebuilder's users know, and verifies their checksums.
	setupEnvtest = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"
	// envtestVersion is the one that it fetches, of the same minor version as kube/go.mod.
	envtestVersion = "1.36.2"
	// envtestIndex lists them, with their checksums.
	envtestIndex = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"

	// answerTimeout is how long the index may take to answer if there is no network. fetchTimeout is for the whole
	// download, which must not take longer than a build.
	answerTimeout = 5 * time.Second
	fetchTimeout  = 3 * time.Minute
)

// A download is a folder that setup-envtest fills.
type download struct {
	b      builder
	bin    string // setup-envtest's folder
	index  string
	folder Folder
}

func newDownload(b builder) download {
	bin := filepath.Join(filepath.Dir(b.bin), "envtest")
	name := fmt.Sprintf("%s-%s-%s", envtestVersion, runtime.GOOS, runtime.GOARCH)
	return download{b: b, bin: bin, index: envtestIndex, folder: Folder(filepath.Join(bin, "k8s", name))}
}

func (d download) done() bool { return d.folder.missing() == "" }

// fetch fills the folder, or says why not.
func (d download) fetch(ctx context.Context) error {
	p := newProgress(d.b.out, "downloading")
	defer p.stop()
	p.say("fetching kube-apiserver and etcd %s with setup-envtest (%s=build: build them instead)", envtestVersion, envHow)
	err := d.ask(ctx)
	if err == nil {
		err = d.run(ctx)
	}
	if err != nil {
		p.say("they cannot be fetched: %v", err)
	}
	return err
}

// ask finds out whether the index can be reached.
func (d download) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, d.index, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", d.index, response.Status)
	}
	return nil
}

// run has setup-envtest fill a folder aside, which takes its place when it is complete.
func (d download) run(ctx context.Context) (err error) {
	aside := d.bin + ".new"
	if err := removeAll(aside); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeAll(aside)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("not done after %s", fetchTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", "-gcflags=all=-dwarf=false", setupEnvtest, "use", envtestVersion,
		"--installed-only=false", "--bin-dir", aside, "--index", d.index)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	// The go command starts setup-envtest, which has to end as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", errors.Join(err, context.Cause(ctx)), bytes.TrimSpace(out))
	}
	path, err := filepath.Rel(d.bin, string(d.folder))
	if err != nil {
		return err
	}
	if missing := Folder(filepath.Join(aside, path)).missing(); missing != "" {
		return fmt.Errorf("setup-envtest fetched no %s: %s", missing, bytes.TrimSpace(out))
	}
	// The folder that setup-envtest makes cannot be written, so only root could remove it.
	if err := os.Chmod(filepath.Join(aside, path), 0o755); err != nil {
		return err
	}
	return errors.Join(removeAll(d.bin), os.Rename(aside, d.bin))
}

// removeAll is os.RemoveAll for folders that cannot be written.
func removeAll(path string) error {
	_ = filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o755)
		}
		return nil
	})
	return os.RemoveAll(path)
}
