package assets

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

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

// mirror serves the index and the archive of setup-envtest. A test may change what it serves between requests.
type mirror struct {
	url     string
	archive func(w http.ResponseWriter, r *http.Request)
	hash    [sha512.Size]byte
	fetched int
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	file := fmt.Sprintf("envtest-v%s-%s-%s.tar.gz", envtestVersion, runtime.GOOS, runtime.GOARCH)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	m := &mirror{url: server.URL + "/index.yaml"}
	mux.HandleFunc("/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "releases:\n  v%s:\n    %s:\n      hash: %x\n      selfLink: %s/%s\n", envtestVersion, file,
			m.hash, server.URL, file)
	})
	mux.HandleFunc("/"+file, func(w http.ResponseWriter, r *http.Request) {
		m.fetched++
		m.archive(w, r)
	})
	return m
}

func (m *mirror) serve(archive []byte, hash [sha512.Size]byte) {
	m.hash = hash
	m.archive = func(w http.ResponseWriter, _ *http.Request) {
		if archive == nil {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(archive)
	}
}

// TestDownload: setup-envtest fetches the programs once. What is incomplete, altered or unreachable is refused with the
// reason, and does not stay in the way of the next attempt.
func TestDownload(t *testing.T) {
	if testing.Short() {
		t.Skip("runs setup-envtest, a module of its own: not under -short")
	}
	good, incomplete := archive(t, etcd, apiServer), archive(t, etcd)
	for name, c := range map[string]struct {
		archive []byte
		hash    [sha512.Size]byte
		want    string
	}{
		"good":       {good, sha512.Sum512(good), ""},
		"altered":    {archive(t, etcd, apiServer, "kubectl"), sha512.Sum512(good), "checksum mismatch"},
		"incomplete": {incomplete, sha512.Sum512(incomplete), "fetched no kube-apiserver"},
		"none":       {nil, sha512.Sum512(good), "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t)
			m.serve(c.archive, c.hash)
			var out strings.Builder
			d := newDownload(builder{bin: filepath.Join(t.TempDir(), "kube"), out: &out})
			d.index = m.url
			fetch := func() error {
				return d.b.once(t.Context(), d.done, func() error { return d.fetch(t.Context()) })
			}
			err := fetch()
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || d.done()) {
				t.Errorf("%v, done %v; want an error with %q", err, d.done(), c.want)
			}
			before := m.fetched
			m.serve(good, sha512.Sum512(good))
			require.NoError(t, fetch())
			if c.want == "" && (err != nil || m.fetched != before) {
				t.Errorf("fetched %d times, and then %d; want once: %v\n%s", before, m.fetched, err, &out)
			}
			info, err := os.Stat(string(d.folder))
			require.NoError(t, err)
			if entries, err := os.ReadDir(filepath.Dir(d.bin)); err != nil || len(entries) != 2 || info.Mode()&0o200 == 0 {
				t.Errorf("%v in %v, %v; want the folders kube and envtest, which can be removed", info.Mode(), entries, err)
			}
		})
	}
}

// TestStalledDownload: a download that stalls ends with its context, and so does the process that waits for it.
func TestStalledDownload(t *testing.T) {
	if testing.Short() {
		t.Skip("runs setup-envtest, a module of its own: not under -short")
	}
	m := newMirror(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	m.archive = func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done() // until the client has ended
		close(gone)
	}
	d := newDownload(builder{bin: filepath.Join(t.TempDir(), "kube"), out: t.Output()})
	d.index = m.url
	if err := d.fetch(ctx); err == nil {
		t.Error("fetched from a server that does not answer")
	}
	<-gone
}

// TestChoose: what was built comes before what was downloaded, which comes before a build.
func TestChoose(t *testing.T) {
	b := builder{kube: kube(t), modfile: "go.mod", bin: filepath.Join(t.TempDir(), "kube"), out: t.Output()}
	require.NoError(t, os.Mkdir(filepath.Join(b.kube, apiServer), 0o755))
	write(t, filepath.Join(b.kube, apiServer, "main.go"), "", time.Hour)
	d := newDownload(b)
	d.index = "http://127.0.0.1:1/"
	fill := func(f Folder) {
		require.NoError(t, os.MkdirAll(string(f), 0o755))
		for _, program := range []string{etcd, apiServer} {
			write(t, filepath.Join(string(f), program), "", 0)
			require.NoError(t, os.Chmod(filepath.Join(string(f), program), 0o755))
		}
	}
	check := func(how string, want Folder, wrong string) {
		t.Helper()
		t.Setenv(envHow, how)
		got, err := choose(t.Context(), b, d)
		if got != want || (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s=%s: %s, %v; want %s, %q", envHow, how, got, err, want, wrong)
		}
	}
	check("", b.folder(), "go list") // a build, which fails here
	fill(d.folder)
	check("", d.folder, "")
	check("build", b.folder(), "go list")
	fill(b.folder())
	check("", b.folder(), "")
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
		{full, "", ""}, {full, "build", ""}, {empty, "", "has no program etcd"}, {"bin/kube", "", "absolute"}, {"", "/usr/bin/rota-kube", `it can only be "build"`},
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
