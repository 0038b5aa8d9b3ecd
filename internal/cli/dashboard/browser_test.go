package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/test/require"
)

// tab is a page in headless Chromium, driven by the DevTools protocol over a pipe.
type tab struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	id      int
	session string
	bad     []string // exceptions, console errors and requests to other hosts
	host    string
}

// openTab skips the test if there is no browser.
func openTab(t *testing.T, url string) *tab {
	t.Helper()
	var chromium string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		const text = "NO BROWSER TEST: chromium is not installed, so the dashboard's scripts have not run"
		fmt.Fprintln(os.Stderr, text) // go test prints the reason for a skip only with -v
		t.Skip(text)
	}
	commands, to, err := os.Pipe()
	require.NoError(t, err)
	from, answers, err := os.Pipe()
	require.NoError(t, err)
	profile, err := os.MkdirTemp("", "chromium")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
		"--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles, cmd.WaitDelay = []*os.File{commands, answers}, 10*time.Second // file descriptors 3 and 4
	require.NoError(t, cmd.Start())
	_, _ = commands.Close(), answers.Close()
	p := &tab{t: t, to: to, from: bufio.NewReader(from), host: url}
	t.Cleanup(func() {
		_ = to.Close() // Chromium ends with the pipe
		_ = cmd.Wait()
		cancel()
		_ = os.RemoveAll(profile) // its children may still write
	})
	var target struct{ TargetID string }
	p.send("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	p.send("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	p.session = session.SessionID
	for _, domain := range []string{"Runtime", "Log", "Network", "Page"} {
		p.send(domain+".enable", nil, nil)
	}
	p.send("Page.navigate", map[string]any{"url": url}, nil)
	return p
}

// send sends a command and waits for its result. What the page does meanwhile is noted.
func (p *tab) send(method string, params map[string]any, into any) {
	p.t.Helper()
	p.id++
	command := map[string]any{"id": p.id, "method": method, "params": params}
	if params == nil {
		command["params"] = map[string]any{}
	}
	if p.session != "" {
		command["sessionId"] = p.session
	}
	text, err := json.Marshal(command)
	require.NoError(p.t, err)
	_, err = p.to.Write(append(text, 0))
	require.NoError(p.t, err)
	for {
		text, err := p.from.ReadBytes(0)
		if err != nil {
			p.t.Fatalf("%s: %v", method, err)
		}
		var m struct {
			ID     int
			Method string
			Error  struct{ Message string }
			Result json.RawMessage
			Params struct {
				Request struct{ URL string }
			}
		}
		require.NoError(p.t, json.Unmarshal(text[:len(text)-1], &m))
		switch {
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Runtime.consoleAPICalled" ||
			m.Method == "Log.entryAdded" || m.Method == "Page.javascriptDialogOpening":
			p.bad = append(p.bad, string(text))
		case m.Method == "Network.requestWillBeSent" && !strings.HasPrefix(m.Params.Request.URL, p.host):
			p.bad = append(p.bad, "a request to "+m.Params.Request.URL)
		case m.ID == p.id && m.Error.Message != "":
			p.t.Fatalf("%s: %s", method, m.Error.Message)
		case m.ID == p.id && into != nil:
			require.NoError(p.t, json.Unmarshal(m.Result, into))
			return
		case m.ID == p.id:
			return
		}
	}
}

// value evaluates a JavaScript expression.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	var out struct{ Result struct{ Value T } }
	p.send("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &out)
	return out.Result.Value
}

// wait waits until an expression is true.
func (p *tab) wait(expression string) {
	p.t.Helper()
	for begun := time.Now(); !value[bool](p, expression); time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			p.t.Fatalf("not within a minute: %s\n%s\n%q", expression, value[string](p, "document.body.innerText"), p.bad)
		}
	}
}

// TestBrowser opens the page in Chromium. Its scripts run without an error, show what the stream and the search say,
// leave text that looks like HTML as text, fit narrow and wide windows, press the buttons, and turn gray when the
// dashboard ends.
func TestBrowser(t *testing.T) {
	r := &replicas{}
	server := serve(t, Options{
		Watch: func(ctx context.Context, tell func(*view.Rota, error)) error {
			for { // a state is stale after 5 s
				tell(sample(), nil)
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(time.Second):
				}
			}
		},
		Who: func(context.Context, string, string, string) (any, error) {
			return map[string]any{"works": "yes", "answer": evil, "reasons": []string{evil}, "problems": []string{}}, nil
		},
		Replicas: r,
	})
	p := openTab(t, server.URL)
	p.wait(`document.querySelectorAll("#member-rows tr").length === 1`)
	for id, want := range map[string]string{
		"facts": "epoch 1763712345071", "member-rows": "web-1", "run-rows": "0-255", "problem-list": evil, "age-text": "live",
		"warning-rows": "web-0", "earlier": "Earlier, and over: Lapsed (1).",
	} {
		if got := value[string](p, `document.getElementById("`+id+`").textContent`); !strings.Contains(got, want) {
			t.Errorf("%s has no %q: %q", id, want, got)
		}
	}
	for _, width := range []int{400, 1280} {
		p.send("Emulation.setDeviceMetricsOverride",
			map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
		if got := value[int](p, "document.documentElement.scrollWidth"); got > width {
			t.Errorf("in a window of %d pixels the page is %d wide", width, got)
		}
	}
	if got := value[string](p, `document.getElementById("who-kind").value`); got != "website.web.example.com" {
		t.Errorf("it looks for a %s", got)
	}
	value[any](p, `document.getElementById("who-name").value = "a";
		document.querySelector("#who-form button").click()`)
	p.wait(`document.getElementById("who-answer").textContent.includes("onerror")`)
	value[any](p, `document.querySelector("#member-rows button").click()`)
	p.wait(`document.getElementById("done").textContent.startsWith("web-1 got SIG")`)
	if n := value[int](p, `document.querySelectorAll("main img").length`); n > 0 {
		t.Error("text became an element")
	}
	if len(p.bad) > 0 {
		t.Errorf("the page: %s", strings.Join(p.bad, "\n"))
	}
	server.CloseClientConnections()
	server.Listener.Close()
	p.wait(`document.body.classList.contains("stale") && !document.getElementById("banner").hidden`)
}
