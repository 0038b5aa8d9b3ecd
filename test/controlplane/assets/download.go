package assets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

const (
	// setupEnvtest fetches programs that kubebuilder's users know, and verifies their checksums.
	setupEnvtest = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"
	// envtestVersion is the one that it fetches, of the same minor version as kube/go.mod.
	envtestVersion = "1.36.2"
	// envtestIndex lists them, with their checksums.
	envtestIndex = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"

	// answerTimeout is how long the index may take to answer, where there may be no network. fetchTimeout is for the whole
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
	_, _ = fmt.Fprintf(d.b.out, "rota-kube: fetching kube-apiserver and etcd %s with setup-envtest "+
		"(ROTA_KUBE=build: build them instead)\n", envtestVersion)
	err := d.ask(ctx)
	if err == nil {
		err = d.run(ctx)
	}
	if err != nil {
		_, _ = fmt.Fprintf(d.b.out, "rota-kube: they cannot be fetched: %v\n", err)
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

func (d download) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("not done after %s", fetchTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", setupEnvtest, "use", envtestVersion,
		"--bin-dir", d.bin, "--index", d.index)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", errors.Join(err, context.Cause(ctx)), bytes.TrimSpace(out))
	}
	if missing := d.folder.missing(); missing != "" {
		return fmt.Errorf("setup-envtest fetched no %s: %s", missing, bytes.TrimSpace(out))
	}
	return nil
}
