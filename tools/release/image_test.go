package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// published pushes a release's images and charts to a registry of this test, as the workflow does to the real one, and
// returns its address with the organization.
func published(t *testing.T, dist string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	to := strings.TrimPrefix(server.URL, "http://") + "/rota-dev"
	cmd := exec.CommandContext(t.Context(), "tools/release/publish.sh")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "DIST="+dist, "REGISTRY="+to, "HELM_FLAGS=--plain-http", "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("publish.sh: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = os.Remove(filepath.Join(dist, "published.txt")) })
	return to
}

// pull returns an image of the registry.
func pull(t *testing.T, ref, arch string) (v1.Image, *v1.ConfigFile) {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	r, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := r.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return r, config
}

// files returns a line for each file of an image, with name, mode and owner, and the content of one.
func files(t *testing.T, img v1.Image, name string) (list []string, content []byte) {
	t.Helper()
	stream := mutate.Extract(img)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(list)
			return list, content
		} else if err != nil {
			t.Fatal(err)
		}
		path := strings.Trim(h.Name, "/")
		list = append(list, fmt.Sprintf("%s %v %d:%d", path, h.FileInfo().Mode(), h.Uid, h.Gid))
		if path != name {
			continue
		}
		if content, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReleaseImages: what is in the images, once pushed and pulled: one program, no shell, and nothing that its user may
// write.
func TestReleaseImages(t *testing.T) {
	dist := release(t)
	m, to := metadata(t, dist), published(t, dist)
	for _, i := range images {
		ref := to + "/" + i.Program + ":" + m.Tag
		for _, arch := range []string{"amd64", "arm64"} {
			img, config := pull(t, ref, arch)
			list, program := files(t, img, "usr/local/bin/"+i.Program)
			want := []string{
				"etc drwxr-xr-x 0:0", "etc/group -rw-r--r-- 0:0", "etc/passwd -rw-r--r-- 0:0", "etc/ssl drwxr-xr-x 0:0",
				"etc/ssl/certs drwxr-xr-x 0:0", "etc/ssl/certs/ca-certificates.crt -rw-r--r-- 0:0", "licenses drwxr-xr-x 0:0",
				"licenses/LICENSE -rw-r--r-- 0:0", "licenses/THIRD_PARTY_NOTICES -rw-r--r-- 0:0", "usr drwxr-xr-x 0:0",
				"usr/local drwxr-xr-x 0:0", "usr/local/bin drwxr-xr-x 0:0", "usr/local/bin/" + i.Program + " -rwxr-xr-x 0:0",
			}
			slices.Sort(want)
			if !slices.Equal(list, want) {
				t.Errorf("%s linux/%s has\n%s\nwant\n%s", ref, arch, strings.Join(list, "\n"), strings.Join(want, "\n"))
			}
			c := config.Config
			if config.Architecture != arch || c.User != "65532:65532" || len(c.Entrypoint) != 1 ||
				c.Entrypoint[0] != "/usr/local/bin/"+i.Program || c.Labels["org.opencontainers.image.revision"] != m.Commit {
				t.Errorf("%s linux/%s: %s %+v", ref, arch, config.Architecture, c)
			}
			if err := native("linux", arch, program); err != nil {
				t.Errorf("%s linux/%s: %v", ref, arch, err)
			}
		}
	}
	// The front's static Pod names the command as `rota`, which PATH must find.
	if _, config := pull(t, to+"/rota:"+m.Tag, "amd64"); !slices.Contains(config.Config.Env, "PATH=/usr/local/bin") {
		t.Errorf("environment %v", config.Config.Env)
	}
	var hub struct{ Config struct{ MediaType string } }
	manifest, err := crane.Manifest(to + "/charts/rota:" + hubTag)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(manifest, &hub); err != nil || hub.Config.MediaType != string(hubConfig) {
		t.Errorf("metadata for Artifact Hub: %v in %s", err, manifest)
	}
}

// TestReleaseAgain: what is pushed again, from files of another time, has the same digests.
func TestReleaseAgain(t *testing.T) {
	dist := release(t)
	digests := func() string {
		to := published(t, dist)
		return strings.ReplaceAll(string(read(t, dist, "published.txt")), to, "")
	}
	first := digests()
	charts, err := filepath.Glob(filepath.Join(dist, "*.tgz"))
	if err != nil || len(charts) != 2 {
		t.Fatalf("charts %v, %v", charts, err)
	}
	for _, path := range charts {
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if again := digests(); again != first {
		t.Errorf("pushed\n%s\nand then\n%s", first, again)
	}
}
