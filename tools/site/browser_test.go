package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// tab is a page in a browser, with what it did that it should not.
type tab struct {
	*testing.T
	ctx  context.Context
	host string

	mu  sync.Mutex
	bad []string
}

// open starts a browser. It skips the test where there is none.
func open(t *testing.T, host string) *tab {
	t.Helper()
	var chromium string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if file, err := exec.LookPath(name); err == nil {
			chromium = file
			break
		}
	}
	if chromium == "" {
		text := "NO BROWSER TEST: chromium is not installed, so that nobody has looked at the site"
		fmt.Fprintln(os.Stderr, text) // go test shows the reason of a skip with -v only
		t.Skip(text)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium), chromedp.NoSandbox)
	parent, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel)
	p := &tab{T: t, ctx: ctx, host: host}
	chromedp.ListenTarget(ctx, p.note)
	p.do("start", network.Enable(), log.Enable())
	return p
}

func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.bad = append(p.bad, "exception: "+e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		p.bad = append(p.bad, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "data" && u.Host != p.host {
			p.bad = append(p.bad, "request to elsewhere: "+e.Request.URL)
		}
	}
}

func (p *tab) do(what string, actions ...chromedp.Action) {
	p.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.Fatalf("%s: %v", what, err)
	}
}

func value[V any](p *tab, expression string) V {
	p.Helper()
	var out V
	p.do(expression, chromedp.Evaluate(expression, &out,
		func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return out
}

// visit opens a page, in a window of some width and in a color scheme. SCREENSHOTS names a folder for pictures.
func (p *tab) visit(address string, width int64, scheme string) {
	p.Helper()
	p.do("open "+address, chromedp.EmulateViewport(width, 900),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate(address))
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		var picture []byte
		p.do("screenshot", chromedp.FullScreenshot(&picture, 100))
		name := fmt.Sprintf("%s-%d-%s.png", strings.TrimSuffix(filepath.Base(address), ".html"), width, scheme)
		if err := os.WriteFile(filepath.Join(dir, name), picture, 0o600); err != nil {
			p.Fatal(err)
		}
	}
}

// axe returns what is hard to read or to use on the present page, by the rules of WCAG 2.1 AA that a program can check.
const axe = `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(r => r.violations.map(v =>
	v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200)).join(" | ")))`

// TestBrowser looks at each page in a wide and in a narrow window: it is never wider than the window, asks no other host,
// and can be read in light and in dark colors.
func TestBrowser(t *testing.T) {
	dir := site(t)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	rules, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: run `npm ci` in tools/site", err)
	}
	p := open(t, strings.TrimPrefix(server.URL, "http://"))
	var names []string
	for name := range documents(t, filepath.Join(dir, "main")) {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		for j, width := range []int64{400, 1280} {
			scheme := []string{"light", "dark"}[(i/2+j)%2]
			p.visit(server.URL+"/main/"+name, width, scheme)
			if wide := value[int64](p, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("%s is %d pixels wide in a window of %d", name, wide, width)
			}
			if i%2 != j { // it takes a second: once a page, in turn wide and narrow, light and dark
				continue
			}
			p.do("axe", chromedp.Evaluate(string(rules), nil))
			for _, violation := range value[[]string](p, axe) {
				t.Errorf("%s, %d pixels, %s: %s", name, width, scheme, violation)
			}
		}
	}
	if len(p.bad) > 0 {
		t.Errorf("pages: %s", strings.Join(slices.Compact(p.bad), "\n"))
	}
}

// TestSearch: with the keyboard alone a reader finds a section and goes there; from a server, and from a folder of files.
func TestSearch(t *testing.T) {
	dir := site(t)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	for _, address := range []string{server.URL, "file://" + dir} {
		p := open(t, strings.TrimPrefix(strings.TrimPrefix(server.URL, "http://"), "file://"))
		if strings.HasPrefix(address, "file:") {
			p.host = ""
		}
		p.visit(address+"/main/docs/start.html", 1280, "light")
		p.do("search", chromedp.KeyEvent("/"), chromedp.KeyEvent("break the glass"),
			chromedp.WaitVisible("#site-results li[aria-selected=true]", chromedp.ByQuery))
		p.do("enter", chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#break-the-glass", chromedp.ByQuery))
		if at := value[string](p, "location.href"); at != address+"/main/docs/fence.html#break-the-glass" {
			t.Errorf("the search leads to %s", at)
		}
		for query, want := range map[string]string{
			"rota_coverage_findings": "rota_coverage_findings", "LeaseDuration": "LeaseDuration", "zzzzqqq": "Nothing found",
		} {
			quoted, _ := json.Marshal(query)
			p.do("search", chromedp.Evaluate(fmt.Sprintf(`{const q = document.getElementById("site-query"); q.value = %s; q.dispatchEvent(new Event("input"))}`, quoted), nil),
				chromedp.Sleep(300*time.Millisecond))
			if got := value[string](p, `document.getElementById("site-results").innerText`); !strings.Contains(got, want) {
				t.Errorf("search for %s: %s", query, got)
			}
		}
		if len(p.bad) > 0 {
			t.Errorf("%s: %s", address, strings.Join(p.bad, "\n"))
		}
	}
}

// TestNarrow: in a narrow window the menu opens and closes by its button, and what the search finds is in the window.
func TestNarrow(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir(site(t))))
	defer server.Close()
	p := open(t, strings.TrimPrefix(server.URL, "http://"))
	p.visit(server.URL+"/main/index.html", 400, "light")
	visible := "getComputedStyle(document.getElementById('site-menu')).display !== 'none'"
	for _, want := range []bool{false, true, false} {
		if got := value[bool](p, visible); got != want {
			t.Errorf("the menu is there: %v, want %v", got, want)
		}
		p.do("button", chromedp.Click("#site-menu-button", chromedp.ByQuery))
	}
	p.do("search", chromedp.SendKeys("#site-query", "lease", chromedp.ByQuery),
		chromedp.WaitVisible("#site-results li[aria-selected=true]", chromedp.ByQuery))
	box := `document.getElementById("site-results").getBoundingClientRect()`
	if left, right := value[float64](p, box+".left"), value[float64](p, box+".right"); left < 0 || right > 400 {
		t.Errorf("what was found is from %v to %v, in a window of 400 pixels", left, right)
	}
}
