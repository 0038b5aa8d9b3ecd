// Package assets finds the programs of a control plane for tests, demos and measurements: etcd, kube-apiserver and
// kube-controller-manager. `make kube` calls it through rota-kube, and package controlplane when it starts one.
package assets

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
)

const (
	// envFolder names a folder with kube-apiserver and etcd, as for envtest.
	envFolder = "KUBEBUILDER_ASSETS"
	// envHow says how to get them without that folder. Its only value, "build", skips the download.
	envHow = "ROTA_KUBE"
)

const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
)

// A Folder has the programs etcd and kube-apiserver, and perhaps kube-controller-manager and kubectl. It serves envtest
// as KUBEBUILDER_ASSETS.
type Folder string

// Find returns the first of these: the folder that the environment variable KUBEBUILDER_ASSETS names; one that was
// built or downloaded before; one that setup-envtest downloads, unless ROTA_KUBE=build; one that it builds from source,
// which takes minutes. It writes to w what it downloads or builds, and how far it is. Several goroutines and processes
// may call it at once: one downloads or builds, the others wait.
func Find(ctx context.Context, w io.Writer) (Folder, error) {
	if how := os.Getenv(envHow); how != "" && how != "build" {
		return "", fmt.Errorf("%s=%s: it can only be \"build\"; a folder with kube-apiserver and etcd goes into %s",
			envHow, how, envFolder)
	}
	if path := os.Getenv(envFolder); path != "" {
		if !filepath.IsAbs(path) { // tests run in the folders of their packages
			return "", fmt.Errorf("%s=%s must be an absolute path", envFolder, path)
		}
		if missing := Folder(path).missing(); missing != "" {
			return "", fmt.Errorf("%s=%s has no program %s: name a folder with kube-apiserver and etcd, or unset it",
				envFolder, path, missing)
		}
		return Folder(path), nil
	}
	b, err := newBuilder("", w)
	if err != nil {
		return "", err
	}
	return choose(ctx, b, newDownload(b))
}

// choose returns what was built or downloaded before, or else downloads it, or else builds it.
func choose(ctx context.Context, b builder, d download) (folder Folder, err error) {
	mayDownload := os.Getenv(envHow) != "build"
	found := func() bool {
		switch {
		case b.fresh(etcd, apiServer):
			folder = b.folder()
		case mayDownload && d.done():
			folder = d.folder
		default:
			return false
		}
		return true
	}
	err = b.once(ctx, found, func() error {
		if mayDownload {
			folder = d.folder
			if err := d.fetch(ctx); err == nil || ctx.Err() != nil {
				return err
			}
		}
		folder = b.folder()
		return b.build(ctx, []string{etcd, apiServer})
	})
	return folder, err
}

// Of returns the folder of a minor version of Kubernetes, such as "1.33", built from source. Like Find it writes its
// progress to w.
func Of(ctx context.Context, version string, w io.Writer) (Folder, error) {
	b, err := newBuilder(version, w)
	if err != nil {
		return "", err
	}
	return b.folder(), b.make(ctx, etcd, apiServer)
}

// Etcd returns the path of etcd.
func (f Folder) Etcd() string { return filepath.Join(string(f), etcd) }

// APIServer returns the path of kube-apiserver.
func (f Folder) APIServer() string { return filepath.Join(string(f), apiServer) }

// Version returns the minor version of the folder's kube-apiserver, such as "1.36".
func (f Folder) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, f.APIServer(), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", f.APIServer(), err)
	}
	minor := regexp.MustCompile(`v(\d+\.\d+)\.`).FindSubmatch(out)
	if minor == nil {
		return "", fmt.Errorf("%s --version prints %q, which is no version of Kubernetes", f.APIServer(),
			bytes.TrimSpace(out))
	}
	return string(minor[1]), nil
}

// ControllerManager returns the path of a kube-controller-manager for the folder's kube-apiserver. If the folder has
// none, like those of setup-envtest, it is built from source, once, in the version of the API server.
func (f Folder) ControllerManager(ctx context.Context, w io.Writer) (string, error) {
	version, err := f.Version(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(string(f), controllerManager)
	b, err := newBuilder(version, w)
	if (err != nil || f != b.folder()) && isProgram(path) {
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("%s has no %s: put it there, or unset %s: %w", f, controllerManager, envFolder, err)
	}
	return filepath.Join(b.bin, controllerManager), b.make(ctx, controllerManager)
}

// ControllerManager returns the path of the kube-controller-manager in the version of kube/go.mod, which is built from
// source if it is missing.
func ControllerManager(ctx context.Context, w io.Writer) (string, error) {
	b, err := newBuilder("", w)
	if err != nil {
		return "", err
	}
	return filepath.Join(b.bin, controllerManager), b.make(ctx, controllerManager)
}

// HasFeatureGate reports whether the folder's kube-apiserver knows a feature gate.
func (f Folder) HasFeatureGate(ctx context.Context, gate string) (bool, error) {
	out, err := exec.CommandContext(ctx, f.APIServer(), "--help").Output()
	if err != nil {
		return false, fmt.Errorf("ask %s for its feature gates: %w", f.APIServer(), err)
	}
	return bytes.Contains(out, []byte(":"+gate+"=")), nil
}

// missing returns the program that the folder lacks, or "".
func (f Folder) missing() string {
	for _, program := range []string{etcd, apiServer} {
		if !isProgram(filepath.Join(string(f), program)) {
			return program
		}
	}
	return ""
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// root returns the folder of the main module: the nearest one above the working directory, else the one this file was
// compiled from.
func root() (string, error) {
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
		"or set %s to a folder with kube-apiserver and etcd", starts, envFolder)
}
