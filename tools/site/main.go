// Command site builds the documentation's site from README.md and docs/, as they are read on GitHub:
//
//	cd tools/site && npm ci && go run . -serve localhost:1313
//
// Each version has a folder: "main" is the working tree, and with -tags there is one for each release. Hugo makes the
// pages (hugo.yaml, layouts), in the order of docs/start.md's table of all pages.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

const (
	repository = "https://github.com/rota-dev/rota"
	// working is the version of the working tree, and the branch that its links lead to.
	working = "main"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal("site: ", err)
	}
}

func run(ctx context.Context) error {
	out := flag.String("o", "../../bin/site", "folder for the site; it is emptied first")
	tags := flag.Bool("tags", false, "add the last release of each minor version, from the repository's tags")
	serve := flag.String("serve", "", "address to serve the site at, until Ctrl-C")
	flag.Parse()
	if err := build(ctx, "../..", *out, *tags); err != nil {
		return err
	}
	log.Printf("%s/index.html", *out)
	if *serve == "" {
		return nil
	}
	server := &http.Server{Addr: *serve, Handler: http.FileServer(http.Dir(*out)), ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	log.Printf("http://%s", *serve)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// edition is a version of the documentation, in a folder. Pages are the files of its pages, from there.
type edition struct {
	Name  string   `json:"name"`
	Pages []string `json:"pages"`
	from  string
}

// build makes the site of a checkout. Its first page leads to the newest release, or to main if there is none.
func build(ctx context.Context, checkout, out string, tags bool) error {
	versions := []string{working}
	if tags {
		list, err := exec.CommandContext(ctx, "git", "-C", checkout, "tag", "--list", "v*").Output()
		if err != nil {
			return fmt.Errorf("git tag: %w", err)
		}
		versions = append(versions, releases(strings.Fields(string(list)))...)
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	var all []edition
	for _, v := range versions {
		e := edition{Name: v, from: checkout}
		if v != working {
			dir, err := os.MkdirTemp("", "rota-site-")
			if err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(dir) }()
			if err := extract(ctx, checkout, v, dir); err != nil {
				return err
			}
			e.from = dir
		}
		for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
			found, err := fs.Glob(os.DirFS(e.from), pattern)
			if err != nil {
				return err
			}
			e.Pages = append(e.Pages, found...)
		}
		all = append(all, e)
	}
	for _, e := range all {
		if err := render(ctx, e, filepath.Join(out, e.Name), all); err != nil {
			return fmt.Errorf("version %s: %w", e.Name, err)
		}
	}
	first := versions[min(1, len(versions)-1)]
	page := fmt.Sprintf(`<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Rota</title>
<meta http-equiv="refresh" content="0; url=%[1]s/index.html"></head>
<body><h1>Rota</h1><a href="%[1]s/index.html">Documentation</a></body></html>
`, first)
	return os.WriteFile(filepath.Join(out, "index.html"), []byte(page), 0o644)
}

var release = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// releases returns the last patch of each minor version among tags, the newest first.
func releases(tags []string) []string {
	tags = slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return !release.MatchString(tag) })
	slices.SortFunc(tags, func(a, b string) int { return semver.Compare(b, a) })
	return slices.CompactFunc(tags, func(a, b string) bool { return semver.MajorMinor(a) == semver.MajorMinor(b) })
}

// extract writes the files of a tag into a folder.
func extract(ctx context.Context, checkout, tag, dir string) error {
	files, err := exec.CommandContext(ctx, "git", "-C", checkout, "archive", "--format=tar", tag).Output()
	if err != nil {
		return fmt.Errorf("git archive %s: %w", tag, err)
	}
	tar := exec.CommandContext(ctx, "tar", "-xf", "-", "-C", dir)
	tar.Stdin = bytes.NewReader(files)
	if text, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("files of %s: %w: %s", tag, err, text)
	}
	return nil
}

type mount struct {
	Source string   `json:"source"`
	Target string   `json:"target"`
	Files  []string `json:"files,omitempty"`
}

// render has Hugo write one version's pages, with links to the others.
func render(ctx context.Context, e edition, out string, versions []edition) error {
	from, err := filepath.Abs(e.from)
	if err != nil {
		return err
	}
	out, err = filepath.Abs(out)
	if err != nil {
		return err
	}
	mounts := []mount{
		{Source: "layouts", Target: "layouts"},
		{Source: "assets", Target: "assets"},
		{Source: "content", Target: "content"},
		{Source: filepath.Join(from, "README.md"), Target: "content/_index.md"},
		{Source: filepath.Join(from, "docs"), Target: "content/docs", Files: []string{"*.md", "adr/*.md"}},
		{Source: filepath.Join(from, "docs"), Target: "static/docs", Files: []string{"*.svg", "*.png"}},
	}
	pages, err := filepath.Glob(filepath.Join(from, "*.md"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" {
			mounts = append(mounts, mount{Source: page, Target: "content/" + name})
		}
	}
	folders, err := foldersIn(from)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"baseURL": "/",
		"params": map[string]any{
			"version": e.Name, "versions": versions, "repository": repository, "folders": folders,
		},
		"module": map[string]any{"mounts": mounts},
	})
	if err != nil {
		return err
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("rota-site-%d-%s.json", os.Getpid(), e.Name))
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }()
	hugo := exec.CommandContext(ctx, "go", "tool", "hugo", "build", "--config", "hugo.yaml,"+file, "--destination", out,
		"--panicOnWarning", "--noBuildLock")
	hugo.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if text, err := hugo.CombinedOutput(); err != nil {
		return fmt.Errorf("hugo: %w\n%s", err, text)
	}
	return nil
}

// foldersIn returns the folders of a checkout, to which links are others than to files.
func foldersIn(dir string) ([]string, error) {
	var out []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || !entry.IsDir():
			return err
		case name == ".git" || name == "bin" || entry.Name() == "node_modules":
			return fs.SkipDir
		}
		out = append(out, name)
		return nil
	})
	return out, err
}
