package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// An image has one program. Repository is where releases push it.
type image struct {
	Program, Repository, Title, Description string
}

var images = []image{
	{"rota", "ghcr.io/rota-dev/rota", "Rota",
		"The command rota: dispatchers, the agent of the front, and what people on call use"},
	{"website-operator", "ghcr.io/rota-dev/website-operator", "Website operator",
		"The example operator of Rota, which the chart website installs"},
}

// user and group of the programs. The charts and examples name it, too.
const user = 65532

const source = "https://github.com/rota-dev/rota"

// built is what GoReleaser tells of a build.
type built struct {
	Name, Path, GOOS, GOARCH, Type string
	Extra                          struct{ ID string }
}

// writeImages makes an OCI layout per image, dist/images/PROGRAM, which has an index of one image per platform, and an
// SBOM of each. images.txt names them by digest, as they are once pushed.
func writeImages(ctx context.Context, dist, tag string) error {
	at, err := epoch()
	if err != nil {
		return err
	}
	binaries, commit, err := readDist(dist)
	if err != nil {
		return err
	}
	notices, err := os.ReadFile(filepath.Join(filepath.Dir(dist), "assets", "THIRD_PARTY_NOTICES"))
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(filepath.Dir(dist), "..", "LICENSE"))
	if err != nil {
		return err
	}
	common, err := rootFiles(map[string][]byte{"LICENSE": license, "THIRD_PARTY_NOTICES": notices})
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, i := range images {
		index, err := i.index(binaries, common, facts{tag, commit, at})
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Program, err)
		}
		dir := filepath.Join(dist, "images", i.Program)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		path, err := layout.Write(dir, empty.Index)
		if err != nil {
			return err
		}
		err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag}))
		if err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s:%s@%s\n", i.Repository, tag, digest)
		for _, arch := range []string{"amd64", "arm64"} {
			document := filepath.Join(dist, fmt.Sprintf("image_%s_linux_%s.spdx.json", i.Program, arch))
			if err := writeSBOM(ctx, "oci-dir:"+dir, document, "--platform", "linux/"+arch); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dist, "images.txt"), []byte(list.String()), 0o644) // it is for everybody
}

// readDist returns the binaries in GoReleaser's folder, and the commit that they are of.
func readDist(dist string) (binaries []built, commit string, err error) {
	text, err := os.ReadFile(filepath.Join(dist, "artifacts.json"))
	if err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(text, &binaries); err != nil {
		return nil, "", fmt.Errorf("%s/artifacts.json: %w", dist, err)
	}
	binaries = slices.DeleteFunc(binaries, func(b built) bool { return b.Type != "Binary" })
	// GoReleaser lists them as they became ready.
	slices.SortFunc(binaries, func(a, b built) int { return cmp.Compare(a.Path, b.Path) })
	for i, b := range binaries { // they are by the checkout's root
		binaries[i].Path = filepath.Join(dist, "..", "..", b.Path)
	}
	var metadata struct{ Commit string }
	if text, err = os.ReadFile(filepath.Join(dist, "metadata.json")); err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(text, &metadata); err != nil {
		return nil, "", fmt.Errorf("%s/metadata.json: %w", dist, err)
	}
	return binaries, metadata.Commit, nil
}

// facts are what images say of themselves.
type facts struct {
	tag, commit string
	at          time.Time
}

// labels are those of the OCI image specification.
func (i image) labels(f facts) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": i.Title, prefix + "description": i.Description, prefix + "licenses": "Apache-2.0",
		prefix + "source": source, prefix + "url": source, prefix + "documentation": source + "/blob/" + f.tag + "/README.md",
		prefix + "version": f.tag, prefix + "revision": f.commit, prefix + "created": f.at.Format(time.RFC3339),
	}
}

func (i image) index(binaries []built, common []file, f facts) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	n := 0
	for _, b := range binaries {
		if b.Extra.ID != i.Program || b.GOOS != "linux" {
			continue
		}
		n++
		program, err := os.ReadFile(b.Path)
		if err != nil {
			return nil, err
		}
		img, err := i.of(b.GOARCH, common, program, f)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: b.GOARCH},
		}})
	}
	if n != 2 {
		return nil, fmt.Errorf("%d binaries for linux, want those for amd64 and arm64", n)
	}
	return mutate.Annotations(index, i.labels(f)).(v1.ImageIndex), nil
}

// of makes the image for a platform: from scratch, with the program, and without a shell or anything else to run.
func (i image) of(arch string, common []file, program []byte, f facts) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	path := "usr/local/bin/" + i.Program
	for _, l := range []struct {
		what  string
		files []file
	}{
		{"accounts, authorities of certificates, licenses", common}, {path, []file{{path, 0o755, program}}},
	} {
		text, err := archive(l.files, f.at)
		if err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
		layer, err := tarball.LayerFromOpener(open, tarball.WithCompression(compression.GZip),
			tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{
			CreatedBy: l.what, Created: v1.Time{Time: f.at},
		}})
		if err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: f.at}
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/" + path}, WorkingDir: "/",
		// A static Pod of the front names the command without its path.
		Env: []string{"PATH=/usr/local/bin"}, Labels: i.labels(f),
	}
	return mutate.ConfigFile(img, config)
}

// archive makes a layer of files and the folders that they are in, all root's.
func archive(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{}
	add := func(h tar.Header, text []byte) error {
		h.ModTime, h.Format = at, tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	}
	for _, f := range files {
		for n, r := range f.path {
			if dir := f.path[:n]; r == '/' && !made[dir] {
				made[dir] = true
				if err := add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil); err != nil {
					return nil, err
				}
			}
		}
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.text))}
		if err := add(h, f.text); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
