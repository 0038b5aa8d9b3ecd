package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// findChromium skips the test where there is no browser.
func findChromium(t *testing.T) string {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	text := "NO BROWSER TEST: none of " + strings.Join(names, ", ") + " is installed, so that nobody has looked at the " +
		"dashboard. On Debian: apt-get install chromium"
	fmt.Fprintln(os.Stderr, text) // go test shows the reason of a skip with -v only
	t.Skip(text)
	return ""
}

// tab is a page in a browser, with what it did that it should not.
type tab struct {
	ctx  context.Context
	t    *testing.T
	host string

	mu  sync.Mutex
	bad []string
	// hosts are those that it asked.
	hosts map[string]int
}

func openTab(t *testing.T, parent context.Context, address string, width int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &tab{ctx: ctx, t: t, host: u.Host, hosts: map[string]int{}}
	chromedp.ListenTarget(ctx, p.note)
	if err := chromedp.Run(ctx); err != nil { // the tab lives as long as the context of the first Run
		t.Fatal(err)
	}
	p.do("open "+address, network.Enable(), log.Enable(), page.Enable(), chromedp.EmulateViewport(width, 900),
		chromedp.Navigate(address))
	return p
}

// note keeps errors, dialogs and requests.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.bad = append(p.bad, "exception: "+e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		p.bad = append(p.bad, fmt.Sprintf("console %s: %v", e.Type, e.Args))
	case *log.EventEntryAdded:
		p.bad = append(p.bad, fmt.Sprintf("log %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *page.EventJavascriptDialogOpening:
		p.bad = append(p.bad, "dialog: "+e.Message)
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Host != p.host {
			p.bad = append(p.bad, "request to elsewhere: "+e.Request.URL)
		}
		p.hosts[u.Host]++
	}
}

// clean fails the test if the page did what it should not.
func (p *tab) clean() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bad) > 0 {
		p.t.Errorf("the page: %s", strings.Join(slices.Compact(slices.Clone(p.bad)), "\n"))
	}
	if p.hosts[p.host] < 5 {
		p.t.Errorf("requests: %v; so this test does not see them", p.hosts)
	}
}

// do does something in the page within half a minute.
func (p *tab) do(what string, actions ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// value evaluates an expression of JavaScript.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	var out T
	p.do(expression, chromedp.Evaluate(expression, &out))
	return out
}

// wait waits until an expression is true.
func (p *tab) wait(limit time.Duration, what, expression string) time.Duration {
	p.t.Helper()
	begun := time.Now()
	err := chromedp.Run(p.ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(limit),
		chromedp.WithPollingInterval(100*time.Millisecond)))
	if err != nil {
		var text string
		_ = chromedp.Run(p.ctx, chromedp.Evaluate("document.body.innerText", &text))
		p.t.Fatalf("%s: not within %v: %v\n%s", what, limit, err, text)
	}
	return time.Since(begun)
}

// look sets width and color scheme, and takes a picture if SCREENSHOTS names a folder.
func (p *tab) look(name string, width int64, scheme string) {
	p.t.Helper()
	p.do("look", chromedp.EmulateViewport(width, 900),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
	p.wait(10*time.Second, "the width", fmt.Sprintf("window.innerWidth === %d", width))
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		var picture []byte
		p.do("screenshot", chromedp.FullScreenshot(&picture, 100))
		if err := os.WriteFile(fmt.Sprintf("%s/%s-%d-%s.png", dir, name, width, scheme), picture, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}
