package assets

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/require"
)

// archive returns what setup-envtest downloads, with programs that do nothing.
func archive(t *testing.T, programs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for _, program := range programs {
		text := "#!/bin/sh\n"
		require.NoError(t, w.WriteHeader(&tar.Header{
			Name: "controller-tools/envtest/" + program, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg,
		}))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zipped.Close())
	return b.Bytes()
}

// TestDownload: setup-envtest fetches the programs once. What is incomplete, altered or unreachable is refused with the
// reason, and leaves nothing that the next call would take for the programs.
func TestDownload(t *testing.T) {
	if testing.Short() {
		t.Skip("runs setup-envtest, a module of its own: not under -short")
	}
	good := archive(t, etcd, apiServer)
	for name, c := range map[string]struct {
		archive []byte
		hash    [sha512.Size]byte
		want    string
	}{
		"good":       {good, sha512.Sum512(good), ""},
		"altered":    {archive(t, etcd, apiServer, "kubectl"), sha512.Sum512(good), "checksum mismatch"},
		"incomplete": {archive(t, etcd), sha512.Sum512(archive(t, etcd)), "fetched no kube-apiserver"},
		"none":       {nil, sha512.Sum512(good), "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := fmt.Sprintf("envtest-v%s-%s-%s.tar.gz", envtestVersion, runtime.GOOS, runtime.GOARCH)
			mux := http.NewServeMux()
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			fetched := 0
			mux.HandleFunc("/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, "releases:\n  v%s:\n    %s:\n      hash: %x\n      selfLink: %s\n", envtestVersion, file, c.hash,
					server.URL+path.Join("/", file))
			})
			mux.HandleFunc("/"+file, func(w http.ResponseWriter, _ *http.Request) {
				fetched++
				if c.archive == nil {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = w.Write(c.archive)
			})
			var out strings.Builder
			d := newDownload(builder{bin: filepath.Join(t.TempDir(), "kube"), out: &out})
			d.index = server.URL + "/index.yaml"
			for range 2 {
				err := d.b.once(t.Context(), d.done, func() error { return d.fetch(t.Context()) })
				if c.want == "" {
					require.NoError(t, err)
				} else if err == nil || !strings.Contains(err.Error(), c.want) || d.done() {
					t.Errorf("%v, done %v; want an error with %q", err, d.done(), c.want)
				}
			}
			if c.want == "" && (fetched != 1 || strings.Contains(out.String(), "cannot")) {
				t.Errorf("fetched %d times, want once:\n%s", fetched, &out)
			}
		})
	}
}

// TestNoNetwork: without an index there is one line that says so, and another one with the way out.
func TestNoNetwork(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	var out strings.Builder
	d := newDownload(builder{bin: filepath.Join(t.TempDir(), "kube"), out: &out})
	d.index = server.URL
	if err := d.fetch(t.Context()); err == nil {
		t.Error("fetched from nowhere")
	}
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "ROTA_KUBE=build") ||
		!strings.Contains(text, "connection refused") {
		t.Errorf("it says:\n%s", text)
	}
}

// TestFind: what the environment names comes first, and is refused if it cannot serve.
func TestFind(t *testing.T) {
	empty := t.TempDir()
	full := t.TempDir()
	for _, program := range []string{etcd, apiServer} {
		write(t, filepath.Join(full, program), "#!/bin/sh\n", 0)
		require.NoError(t, os.Chmod(filepath.Join(full, program), 0o755))
	}
	for _, c := range []struct{ folder, how, want string }{
		{full, "", ""}, {full, "build", ""}, {empty, "", "has no program etcd"}, {"", "/usr/bin/rota-kube", `it can only be "build"`},
	} {
		t.Setenv(envFolder, c.folder)
		t.Setenv(envHow, c.how)
		got, err := Find(t.Context(), t.Output())
		if c.want == "" && (err != nil || got != Folder(c.folder)) {
			t.Errorf("%s: %s, %v", c.folder, got, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s=%s %s=%s: %v, want %q", envFolder, c.folder, envHow, c.how, err, c.want)
		}
	}
}
