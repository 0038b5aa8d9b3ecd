package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/rota-dev/rota/test/controlplane/build"
)

// Suites are the groups of tests that run on each version: what every mode of delivery has to pass, the fence's, and
// those of `rota check`.
var Suites = []string{"Filter", "SlotLabel", "ShardSelector", "fence", "rota check"}

// packages are what has these tests, and which of them.
var packages = []struct{ path, run string }{
	{"./internal/delivery", "^TestAPIServer$"}, {"./fence", "."}, {"./cmd/rota", "^TestCheck"},
}

// suiteOf returns the suite of a test; empty: none, as for those that only have subtests.
func suiteOf(pkg, test string) string {
	switch {
	case strings.HasSuffix(pkg, "/fence"):
		return "fence"
	case strings.HasSuffix(pkg, "/cmd/rota"):
		return "rota check"
	}
	_, delivery, sub := strings.Cut(test, "/")
	switch {
	case !sub:
		return ""
	case strings.HasPrefix(delivery, "SlotLabel"):
		return "SlotLabel"
	case strings.HasPrefix(delivery, "ShardSelector"):
		return "ShardSelector"
	default:
		return "Filter"
	}
}

// modfile has the newest client-go. Its informers ask for initial events (WatchList) by default.
const modfile = "go.latest.mod"

// runSuites runs the tests, with the newest client-go, on control planes of a binary. It returns an error if they could
// not be run; tests that fail are in the outcomes. All output goes to log.
func runSuites(ctx context.Context, root, binary string, log io.Writer) (map[string]Outcome, error) {
	out := map[string]Outcome{}
	for _, p := range packages {
		cmd := exec.CommandContext(ctx, "go", "test", "-modfile="+modfile, "-json", "-vet=off", "-count=1", "-timeout=30m",
			"-run", p.run, p.path)
		cmd.Dir, cmd.Env = root, append(os.Environ(), build.EnvBinary+"="+binary, "GOWORK=off")
		var text bytes.Buffer
		cmd.Stdout = &text
		cmd.Stderr = log
		failed := cmd.Run()
		if failed != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n, err := readEvents(&text, out, log)
		if err == nil && failed != nil && n == 0 { // it could not be built, or ended without a verdict
			err = failed
		}
		if err != nil {
			return nil, fmt.Errorf("go test %s: %w", p.path, err)
		}
	}
	return out, nil
}

// readEvents adds what `go test -json` prints to outcomes, and returns how many tests failed. Of a test that fails with
// its subtests, these are named.
func readEvents(r io.Reader, out map[string]Outcome, log io.Writer) (failed int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct {
			Action, Package, Test, Output string
			Elapsed                       float64
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return failed, fmt.Errorf("%w: %s", err, lines.Bytes())
		}
		if e.Action == "output" || e.Action == "build-output" {
			if _, err := io.WriteString(log, e.Output); err != nil {
				return failed, err
			}
		}
		suite := suiteOf(e.Package, e.Test)
		o := out[suite]
		switch {
		case e.Test == "" || suite == "":
			continue
		case e.Action == "pass":
			o.Passed++
		case e.Action == "skip":
			o.Skipped++
		case e.Action == "fail":
			failed++
			within := func(test string) bool { return strings.HasPrefix(test, e.Test+"/") }
			if !slices.ContainsFunc(o.Failed, within) {
				o.Failed = append(o.Failed, e.Test)
			}
		}
		if top := strings.Count(e.Test, "/"); top == 0 || suite != "fence" && suite != "rota check" && top == 1 {
			o.Seconds += e.Elapsed
		}
		out[suite] = o
	}
	return failed, lines.Err()
}
