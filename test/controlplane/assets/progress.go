package assets

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const sayEvery = 5 * time.Second

// A progress prints every few seconds how far a download or a build is. It is the writer for the output of
// `go build -v`, which is one line per compiled package.
type progress struct {
	out   io.Writer
	begin time.Time
	first string // what happens before the first line
	total int    // packages the program has; set before anything is written

	mu    sync.Mutex
	done  int
	lines []string // the last ones
	quit  chan struct{}
}

func newProgress(out io.Writer, first string) *progress {
	p := &progress{out: out, begin: time.Now(), first: first, quit: make(chan struct{})}
	go func() {
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for {
			select {
			case <-p.quit:
				return
			case <-tick.C:
				p.report()
			}
		}
	}()
	return p
}

func (p *progress) stop() { close(p.quit) }

func (p *progress) report() {
	p.mu.Lock()
	done, seconds := p.done, time.Since(p.begin).Seconds()
	p.mu.Unlock()
	if done == 0 {
		p.say("%.0f s, %s", seconds, p.first)
		return
	}
	// Packages in Go's cache are not compiled again, so the total is only a bound.
	p.say("%.0f s, %d packages compiled of at most %d", seconds, done, p.total)
}

func (p *progress) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, "rota-kube: "+format+"\n", args...)
}

func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += bytes.Count(b, []byte("\n"))
	p.lines = append(p.lines, strings.Split(strings.TrimSpace(string(b)), "\n")...)
	p.lines = p.lines[max(0, len(p.lines)-30):]
	return len(b), nil
}

// tail returns the last lines of the output, where the errors are.
func (p *progress) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}
