package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/test/mutant"
	"github.com/rota-dev/rota/test/mutant/active"
)

// bench runs checks that were built once, for every mutant.
type bench struct {
	options
	dir, overlay string
}

func itoa(n int) string { return strconv.Itoa(n) }

const (
	module   = mutant.Module
	chaosPkg = "test/chaos/cmd"
)

// binary is where the tests of a package are, or the probe.
func (b *bench) binary(pkg string) string {
	return filepath.Join(b.dir, strings.NewReplacer("/", "-", ".", "rota").Replace(pkg)+".test")
}

// build builds what the checks run, with all mutants.
func (b *bench) build(ctx context.Context, tools []tool) error {
	built := map[string]bool{}
	do := func(pkg string, args ...string) error {
		if built[pkg] {
			return nil
		}
		built[pkg] = true
		args = append(args, "-overlay", b.overlay, "-o", b.binary(pkg), module+"/"+pkg)
		args[len(args)-1] = strings.TrimSuffix(args[len(args)-1], "/.")
		cmd := exec.CommandContext(ctx, "go", args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	for _, t := range tools {
		if t.probe != nil {
			if err := do("test/mutant/probe", "build"); err != nil {
				return err
			}
		}
		if t.faults != nil {
			if err := do(chaosPkg, "build"); err != nil {
				return err
			}
		}
		for _, tests := range t.tests {
			for _, one := range tests {
				if err := do(one.pkg, "test", "-c"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Verdict says what a check made of a mutant.
type Verdict string

// Verdicts.
const (
	// Caught: the check failed as it does.
	Caught Verdict = "caught"
	// Survived: the check found nothing.
	Survived Verdict = "survived"
	// Crashed: the check panicked or ran out of time, which is no finding.
	Crashed Verdict = "crashed"
	// Unreached: the bug is in code that the check does not run.
	Unreached Verdict = "unreached"
	// Skipped: another check had found it.
	Skipped Verdict = "skipped"
)

// result is what came of one check of one mutant.
type result struct {
	Verdict Verdict
	// Found is the test, seed or scope, and what it says.
	Found   string  `json:",omitempty"`
	Seconds float64 `json:",omitempty"`
}

func (r result) String() string {
	switch r.Verdict {
	case Caught, Crashed:
		return fmt.Sprintf("%s in %.1f s: %s", r.Verdict, r.Seconds, r.Found)
	case Survived:
		return fmt.Sprintf("found nothing in %.1f s", r.Seconds)
	case Unreached, Skipped:
	}
	return string(r.Verdict)
}

// row is what came of a mutant.
type row struct {
	mutant.Mutant
	Results map[string]result
}

func (r row) caught() bool {
	for _, res := range r.Results {
		if res.Verdict == Caught {
			return true
		}
	}
	return false
}

// matrix runs the checks for every mutant.
func (b *bench) matrix(ctx context.Context, tools []tool, mutants []mutant.Mutant) []row {
	var rows []row
	for _, m := range mutants {
		r := row{m, map[string]result{}}
		for _, t := range tools {
			switch {
			case ctx.Err() != nil:
				return rows
			case !t.reached(m):
				r.Results[t.name] = result{Verdict: Unreached}
			case r.caught() && !b.all:
				r.Results[t.name] = result{Verdict: Skipped}
			default:
				r.Results[t.name] = b.try(ctx, t, m)
				fmt.Fprintf(os.Stderr, "%s: %s %s\n", m.Name, t.name, r.Results[t.name])
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// try runs a check with a mutant; without any for the zero one.
func (b *bench) try(ctx context.Context, t tool, m mutant.Mutant) result {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	r := result{Verdict: Survived}
	if t.probe != nil {
		r.Verdict, r.Found = b.probe(ctx, t, m)
	}
	if t.faults != nil {
		r.Verdict, r.Found = b.faults(ctx, t, m)
	}
	for _, one := range t.tests[m.Package] {
		if r.Verdict == Survived {
			r.Verdict, r.Found = b.test(ctx, one, m)
		}
	}
	r.Seconds = time.Since(begun).Seconds()
	return r
}

func (b *bench) command(ctx context.Context, m mutant.Mutant, pkg string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.binary(pkg), args...)
	cmd.Env = append(os.Environ(), active.Variable+"="+m.Name)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (b *bench) probe(ctx context.Context, t tool, m mutant.Mutant) (Verdict, string) {
	out, err := b.command(ctx, m, "test/mutant/probe", t.probe(b.options)...).Output()
	var found struct {
		Mutant, Where, Rule string
	}
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	switch {
	case ctx.Err() != nil:
		return Crashed, "out of time"
	case err != nil:
		return Crashed, crash(err)
	case found.Mutant != m.Name:
		return Crashed, fmt.Sprintf("built without mutants: it ran with mutant %q", found.Mutant)
	case found.Rule == "":
		return Survived, ""
	}
	return Caught, found.Where + ": " + found.Rule
}

// faults runs a few faults on a real API server.
func (b *bench) faults(ctx context.Context, t tool, m mutant.Mutant) (Verdict, string) {
	out, err := b.command(ctx, m, chaosPkg, t.faults...).Output()
	if ctx.Err() != nil {
		return Crashed, "out of time"
	}
	return judgeFaults(out, err)
}

// judgeFaults says what the report of the command chaos comes to, of which err is the exit.
func judgeFaults(out []byte, err error) (Verdict, string) {
	var report struct {
		Total struct {
			Runs int `json:"runs"`
		} `json:"total"`
		Failing []struct {
			Fault string   `json:"fault"`
			Error string   `json:"error"`
			Why   []string `json:"why"`
		} `json:"failing"`
	}
	bad := json.Unmarshal(out, &report)
	switch {
	case bad == nil && len(report.Failing) > 0:
		f := report.Failing[0]
		if f.Error != "" {
			return Crashed, f.Fault + ": " + f.Error
		}
		return Caught, f.Fault + ": " + strings.Join(f.Why, ", ")
	case err != nil:
		return Crashed, crash(err)
	case bad != nil || report.Total.Runs == 0:
		return Crashed, "there is no report"
	}
	return Survived, ""
}

// crash is the end of what a process said.
func crash(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		for line := range strings.Lines(string(exit.Stderr)) {
			if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
				return strings.TrimSpace(line)
			}
		}
	}
	return err.Error()
}

var (
	failed   = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	panicked = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*)$`)
	// violated is what a script or a test says that is about a check of package sim.
	violated = regexp.MustCompile(`_test\.go:\d+: violated: ([a-z][a-z ]*): `)
	// differing is what a differential test says: how many calls were the same before.
	differing = regexp.MustCompile(`_test\.go:\d+: (call \d+): |\[rapid\] failed (after \d+ tests)`)
)

func (b *bench) test(ctx context.Context, t test, m mutant.Mutant) (Verdict, string) {
	args := []string{"-test.run", t.run, "-test.failfast"}
	if t.single {
		args = append(args, "-test.parallel", "1")
	}
	cmd := b.command(ctx, m, t.pkg, args...)
	cmd.Dir = t.pkg
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return Crashed, "out of time"
	}
	return judge(string(out), err)
}

// judge says what the output of a test binary comes to, of which err is the exit.
func judge(out string, err error) (Verdict, string) {
	names := failed.FindAllStringSubmatch(out, -1)
	switch {
	case strings.Contains(out, "no tests to run"):
		return Crashed, "there are no such tests"
	case err == nil:
		return Survived, ""
	case panicked.MatchString(out):
		return Crashed, panicked.FindString(out)
	case len(names) == 0:
		return Crashed, strings.TrimSpace(err.Error() + " " + out)
	}
	// The innermost test says most.
	name := names[0][1]
	for _, n := range names {
		if strings.HasPrefix(n[1], name+"/") {
			name = n[1]
		}
	}
	if v := violated.FindStringSubmatch(out); v != nil {
		name += ": " + v[1]
	}
	if n := differing.FindStringSubmatch(out); n != nil {
		name += ": " + n[1] + n[2]
	}
	return Caught, name
}
