package main

import (
	"context"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

const checkout = "../.."

// built is the site of the working tree. It is built once for all tests.
var built = sync.OnceValues(func() (string, error) {
	out, err := os.MkdirTemp("", "rota-site-test-")
	if err != nil {
		return "", err
	}
	removed = out
	return out, build(context.Background(), checkout, out, false)
})

var removed string

func TestMain(m *testing.M) {
	code := m.Run()
	if removed != "" {
		_ = os.RemoveAll(removed)
	}
	os.Exit(code)
}

func site(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("node_modules/minisearch"); err != nil {
		t.Fatal("the search library is missing: run `npm ci` in tools/site")
	}
	out, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// document is a page of the site.
type document struct {
	elements []*html.Node
	ids      map[string]bool
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text returns the words in an element.
func text(n *html.Node) string {
	var out strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			out.WriteString(d.Data)
		}
	}
	return strings.TrimSpace(out.String())
}

func (d *document) all(kind atom.Atom) []*html.Node {
	return slices.DeleteFunc(slices.Clone(d.elements), func(n *html.Node) bool { return n.DataAtom != kind })
}

// documents returns the pages in a folder, by their path in it.
func documents(t *testing.T, dir string) map[string]*document {
	t.Helper()
	out := map[string]*document{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		defer file.Close()
		tree, err := html.Parse(file)
		if err != nil {
			return err
		}
		d := &document{ids: map[string]bool{}}
		for n := range tree.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			d.elements = append(d.elements, n)
			if id := attr(n, "id"); id != "" {
				if d.ids[id] {
					t.Errorf("%s: two elements have the id %q", name, id)
				}
				d.ids[id] = true
			}
		}
		out[name] = d
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPages: each page in the repository is one of the site, with a title of its own, one first heading, and words for
// its pictures.
func TestPages(t *testing.T) {
	pages := documents(t, site(t))
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		files, err := filepath.Glob(filepath.Join(checkout, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			name, err := filepath.Rel(checkout, file)
			if err != nil {
				t.Fatal(err)
			}
			if name = strings.ToLower(strings.TrimSuffix(name, ".md")); name == "readme" {
				name = "index"
			}
			if pages["main/"+name+".html"] == nil {
				t.Errorf("%s is not in the site", file)
			}
		}
	}
	titles := map[string]string{}
	for name, page := range pages {
		headings, title := page.all(atom.H1), page.all(atom.Title)
		if len(headings) != 1 || text(headings[0]) == "" {
			t.Errorf("%s has %d headings of level 1", name, len(headings))
		}
		if len(title) != 1 || text(title[0]) == "" {
			t.Errorf("%s has %d titles", name, len(title))
		} else if other := titles[text(title[0])]; other != "" {
			t.Errorf("%s and %s have the title %q", name, other, text(title[0]))
		} else {
			titles[text(title[0])] = name
		}
		for _, image := range page.all(atom.Img) {
			if attr(image, "alt") == "" {
				t.Errorf("%s: the picture %s has no text in its place", name, attr(image, "src"))
			}
		}
	}
}

// TestLinks: each link leads to a page, a heading, or a file of the repository; and nothing of the page itself comes from
// another host.
func TestLinks(t *testing.T) {
	dir := site(t)
	pages := documents(t, dir)
	links := 0
	for name, page := range pages {
		for _, n := range page.elements {
			address := attr(n, "href")
			switch n.DataAtom {
			case atom.A, atom.Link, atom.Area:
			case atom.Option:
				address = attr(n, "value")
			default:
				address = attr(n, "src")
			}
			if address == "" || strings.HasPrefix(address, "data:") {
				continue
			}
			links++
			u, err := url.Parse(address)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			switch {
			case u.Host != "" && n.DataAtom != atom.A:
				t.Errorf("%s: a reader's browser would ask %s for %s", name, u.Host, address)
			case strings.HasPrefix(address, repository+"/blob/main/") || strings.HasPrefix(address, repository+"/tree/main/"):
				inRepository(t, name, u)
			case u.Host != "":
			case strings.HasPrefix(u.Path, "/"):
				t.Errorf("%s: %s is no relative link, so it depends on where the site is", name, address)
			default:
				to := name
				if u.Path != "" {
					to = path.Join(path.Dir(name), u.Path)
				}
				if info, err := os.Stat(filepath.Join(dir, to)); err != nil || info.IsDir() {
					t.Errorf("%s: %s leads nowhere", name, address)
				} else if there := pages[to]; u.Fragment != "" && (there == nil || !there.ids[u.Fragment]) {
					t.Errorf("%s: %s: there is no such heading", name, address)
				}
			}
		}
	}
	if links < 1000 {
		t.Errorf("only %d links", links)
	}
}

// inRepository checks a link to a file or folder on GitHub.
func inRepository(t *testing.T, page string, u *url.URL) {
	t.Helper()
	parts := strings.SplitN(strings.TrimPrefix(u.Path, "/"), "/", 5) // owner, repository, blob or tree, branch, path
	info, err := os.Stat(filepath.Join(checkout, parts[4]))
	if err != nil {
		t.Errorf("%s: %v", page, err)
	} else if info.IsDir() != (parts[2] == "tree") {
		t.Errorf("%s: %s: folder %v", page, u, info.IsDir())
	}
}

// TestReleases: the last patch of each minor version is a version of the site.
func TestReleases(t *testing.T) {
	got := releases([]string{"v0.1.0", "v0.9.0", "v0.1.10", "v0.1.9", "v0.10.0", "v1.0.0-rc.1", "vendor", "charts/v1.0.0"})
	if want := []string{"v0.10.0", "v0.9.0", "v0.1.10"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestVersions: with releases, each version has its own pages, links and menu, and readers come to the newest release. A
// page that docs/start.md does not list is in the menu, too.
func TestVersions(t *testing.T) {
	site(t) // Hugo is built, and the search library is there
	repo, out := t.TempDir(), t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, text)
		}
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(repo, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("README.md", "# Rota\n\n[start](docs/start.md)\n")
	write("docs/start.md", "# Start\n\nSee [the code](../go.mod).\n\n## All pages\n\n| you want to | read |\n| --- | --- |\n"+
		"| **begin** | [code](code.md) |\n")
	write("docs/code.md", "# Code\n")
	write("docs/adr/0001-first.md", "# First\n")
	git("add", ".")
	git("commit", "-qm", "first")
	git("tag", "v0.1.0")
	write("docs/new.md", "# New\n")
	if err := build(t.Context(), repo, out, true); err != nil {
		t.Fatal(err)
	}
	pages := documents(t, out)
	links := func(name string) string {
		t.Helper()
		if pages[name] == nil {
			t.Fatalf("no page %s", name)
		}
		var all []string
		for _, n := range pages[name].elements {
			all = append(all, attr(n, "href"), attr(n, "value"), attr(n, "content"), text(n))
		}
		return strings.Join(all, "\n")
	}
	for page, want := range map[string][]string{
		"index.html":             {"v0.1.0/index.html"},
		"main/docs/start.html":   {repository + "/blob/main/go.mod", "../docs/new.html", "../../v0.1.0/docs/start.html", "More"},
		"main/docs/new.html":     {"../../v0.1.0/index.html"}, // where it is not yet
		"main/index.html":        {"../v0.1.0/index.html"},
		"v0.1.0/docs/start.html": {repository + "/blob/v0.1.0/go.mod", "../../main/docs/start.html"},
	} {
		for _, want := range want {
			if !strings.Contains(links(page), want) {
				t.Errorf("%s has no %s", page, want)
			}
		}
	}
	if strings.Contains(links("v0.1.0/docs/start.html"), "new.html") {
		t.Error("v0.1.0 has a page that came after it")
	}
}
