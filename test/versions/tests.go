package versions

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Result is what the tests of a package said. A test with subtests counts as one more.
type Result struct {
	Passed, Failed int
	// Skipped are the reasons of the tests that were skipped, by name.
	Skipped map[string]string
	// Said is what failing tests, or a package that does not compile, printed.
	Said []string
	Took time.Duration
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // in seconds
}

// Test runs the tests of the packages, one after the other, with more flags of go test.
func (p Pair) Test(ctx context.Context, dir string, packages, flags []string) (map[string]*Result, error) {
	args := append([]string{"-json", "-count=1", "-vet=off", "-p", "1", "-timeout", "40m"}, flags...)
	cmd := p.command(ctx, dir, "test", append(args, packages...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, err := collect(out)
	ended := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err != nil:
		return nil, err
	case errors.As(ended, &exit) && len(results) > 0: // the results say what failed
		return results, nil
	default:
		return results, ended
	}
}

// collect reads what `go test -json` prints.
func collect(r io.Reader) (map[string]*Result, error) {
	out, said := map[string]*Result{}, map[string][]string{}
	of := func(name string) *Result {
		if out[name] == nil {
			out[name] = &Result{Skipped: map[string]string{}}
		}
		return out[name]
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("output of go test: %q: %w", lines.Text(), err)
		}
		id := e.Package + " " + e.Test
		switch {
		case e.Action == "build-output":
			of(e.ImportPath).Said = append(of(e.ImportPath).Said, e.Output)
		case e.Action == "build-fail":
			of(e.ImportPath).Failed++
		case e.Action == "output":
			said[id] = append(said[id], e.Output)
		case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
			of(e.Package).Took = time.Duration(e.Elapsed * float64(time.Second))
			if p := of(e.Package); e.Action == "fail" && p.Failed == 0 {
				p.Failed++ // it panicked, or ran out of time
				p.Said = append(p.Said, said[id]...)
			}
		case e.Action == "pass":
			of(e.Package).Passed++
			delete(said, id)
		case e.Action == "fail":
			of(e.Package).Failed++
			of(e.Package).Said = append(of(e.Package).Said, said[id]...)
		case e.Action == "skip":
			of(e.Package).Skipped[e.Test] = reason(said[id])
		}
	}
	return out, lines.Err()
}

// reason returns what a test said when it was skipped.
func reason(said []string) string {
	for _, line := range said {
		if _, text, ok := strings.Cut(strings.TrimSpace(line), ".go:"); ok {
			if _, text, ok = strings.Cut(text, ": "); ok {
				return text
			}
		}
	}
	return ""
}
