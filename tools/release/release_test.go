package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// release is the folder of a release that was built, from RELEASE. `make release-dry-run` builds one, and runs these
// tests.
func release(t *testing.T) string {
	t.Helper()
	dist := os.Getenv("RELEASE")
	if dist == "" {
		t.Skip("RELEASE names no release: `make release-dry-run` builds one")
	}
	return dist
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// metadata is what GoReleaser notes of a release.
func metadata(t *testing.T, dist string) (m struct{ Tag, Version, Commit string }) {
	t.Helper()
	if err := json.Unmarshal(read(t, dist, "metadata.json"), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

var platforms = []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64"}

// TestReleaseChecksums: checksums.txt has exactly what is released, and is right.
func TestReleaseChecksums(t *testing.T) {
	dist := release(t)
	var got, want []string
	for line := range strings.Lines(string(read(t, dist, "checksums.txt"))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got = append(got, name)
		if actual := fmt.Sprintf("%x", sha256.Sum256(read(t, dist, name))); actual != sum {
			t.Errorf("%s has %s, and checksums.txt says %s", name, actual, sum)
		}
	}
	for _, platform := range platforms {
		for _, program := range []string{"rota", "kubectl-rota"} {
			name := program + "_" + platform + ".tar.gz"
			if strings.HasPrefix(platform, "windows") {
				name = program + "_" + platform + ".zip"
			}
			want = append(want, name, name+".spdx.json")
		}
	}
	version := strings.TrimPrefix(metadata(t, dist).Tag, "v")
	want = append(want, "rota-"+version+".tgz", "website-"+version+".tgz", "images.txt")
	for _, program := range []string{"rota", "website-operator"} {
		for _, arch := range []string{"amd64", "arm64"} {
			want = append(want, "image_"+program+"_linux_"+arch+".spdx.json")
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("checksums.txt has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// member is a file in an archive.
type member struct {
	mode os.FileMode
	text []byte
}

// members returns the files of a tar.gz or zip, by name.
func members(t *testing.T, path string) map[string]member {
	t.Helper()
	out := map[string]member{}
	if strings.HasSuffix(path, ".zip") {
		z, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			out[f.Name] = member{f.Mode(), text}
		}
		return out
	}
	z, err := gzip.NewReader(bytes.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = member{h.FileInfo().Mode(), text}
	}
}

// TestReleaseArchives: each archive has the program, for its platform, of this commit and version, static and without
// paths of the machine that built it; and the licenses. The SBOM names all modules in it.
func TestReleaseArchives(t *testing.T) {
	dist := release(t)
	m := metadata(t, dist)
	archives, err := filepath.Glob(filepath.Join(dist, "*_*_*.[tz][ai][rp]*"))
	if err != nil {
		t.Fatal(err)
	}
	archives = slices.DeleteFunc(archives, func(a string) bool { return strings.HasSuffix(a, ".json") })
	if len(archives) != 2*len(platforms) {
		t.Fatalf("archives: %v", archives)
	}
	for _, path := range archives {
		name := filepath.Base(path)
		program, platform, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(name, ".tar.gz"), ".zip"), "_")
		system, arch, _ := strings.Cut(platform, "_")
		if system == "windows" {
			program += ".exe"
		}
		files := members(t, path)
		if len(files) != 3 || files["LICENSE"].text == nil || files["THIRD_PARTY_NOTICES"].text == nil {
			t.Errorf("%s has %d files", name, len(files))
		}
		binary := files[program]
		if binary.mode.Perm() != 0o755 {
			t.Errorf("%s: %s has the mode %v", name, program, binary.mode)
		}
		info, err := buildinfo.Read(bytes.NewReader(binary.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		for key, want := range map[string]string{
			"GOOS": system, "GOARCH": arch, "CGO_ENABLED": "0", "-trimpath": "true",
			"vcs.revision": m.Commit, "vcs.modified": "false",
		} {
			if settings[key] != want {
				t.Errorf("%s: %s is %q, want %q", name, key, settings[key], want)
			}
		}
		if info.Main.Version != m.Tag {
			t.Errorf("%s is of version %s, want %s", name, info.Main.Version, m.Tag)
		}
		if err := native(system, arch, binary.text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkSBOM(t, filepath.Join(dist, name+".spdx.json"), info)
		for _, dep := range info.Deps {
			if !bytes.Contains(files["THIRD_PARTY_NOTICES"].text, []byte("\n=== "+dep.Path+" "+dep.Version+": ")) {
				t.Errorf("%s: no license of %s %s", name, dep.Path, dep.Version)
			}
		}
	}
}

// native says what is wrong with a program for a platform.
func native(system, arch string, program []byte) error {
	r := bytes.NewReader(program)
	switch system {
	case "linux":
		f, err := elf.NewFile(r)
		if err != nil {
			return err
		}
		if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
			return fmt.Errorf("the machine is %v", f.Machine)
		}
		if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			return fmt.Errorf("it is linked with libraries of the system")
		}
	case "darwin":
		f, err := macho.NewFile(r)
		if err != nil {
			return err
		}
		if want := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[arch]; f.Cpu != want {
			return fmt.Errorf("the machine is %v", f.Cpu)
		}
	default:
		f, err := pe.NewFile(r)
		if err != nil {
			return err
		}
		want := map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64}[arch]
		if f.Machine != want {
			return fmt.Errorf("the machine is %#x", f.Machine)
		}
	}
	return nil
}

// checkSBOM checks that an SPDX document has all modules of a program.
func checkSBOM(t *testing.T, path string, info *buildinfo.BuildInfo) {
	t.Helper()
	var document struct {
		SPDXVersion, DocumentNamespace string
		Packages                       []struct{ Name, VersionInfo string }
	}
	if err := json.Unmarshal(read(t, path), &document); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	found := map[string]bool{}
	for _, p := range document.Packages {
		found[p.Name+" "+p.VersionInfo] = true
	}
	for _, dep := range info.Deps {
		if !found[dep.Path+" "+dep.Version] {
			t.Errorf("%s lacks %s %s", path, dep.Path, dep.Version)
		}
	}
	if len(info.Deps) < 20 || !strings.HasPrefix(document.SPDXVersion, "SPDX-2.") ||
		!regexp.MustCompile(`-[0-9a-f]{64}$`).MatchString(document.DocumentNamespace) {
		t.Errorf("%s: %s %s, of %d modules", path, document.SPDXVersion, document.DocumentNamespace, len(info.Deps))
	}
}

// TestReleaseKrew: the archives that .krew.yaml names have its `bin` in them.
func TestReleaseKrew(t *testing.T) {
	dist := release(t)
	text := string(read(t, root, ".krew.yaml"))
	uris := regexp.MustCompile(`releases/download/\{\{ \.TagName \}\}/(\S+)"`).FindAllStringSubmatch(text, -1)
	bins := regexp.MustCompile(`(?m)^    bin: (\S+)$`).FindAllStringSubmatch(text, -1)
	if len(uris) != len(platforms) || len(bins) != len(uris) {
		t.Fatalf("%d archives and %d programs for %d platforms", len(uris), len(bins), len(platforms))
	}
	for i := range uris {
		files := members(t, filepath.Join(dist, uris[i][1]))
		if files[bins[i][1]].text == nil || files["LICENSE"].text == nil { // krew-index wants a license
			t.Errorf("%s has no %s, or no LICENSE", uris[i][1], bins[i][1])
		}
	}
}
