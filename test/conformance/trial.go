package conformance

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// tries is how often a check may fail: on a machine that is busy, a program may be late once. Each time there is more
// time.
const tries = 3

// trial is a try of a check. It has the methods of a testing.T that checks need.
type trial struct {
	failures, logs []string
	skipped        string
	cleanups       []func()
}

func (t *trial) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}
func (t *trial) Error(args ...any) { t.Errorf("%s", fmt.Sprint(args...)) }
func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}
func (t *trial) Fatal(args ...any) { t.Fatalf("%s", fmt.Sprint(args...)) }
func (t *trial) Skip(args ...any) {
	t.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}
func (t *trial) Logf(format string, args ...any) {
	t.logs = append(t.logs, fmt.Sprintf(format, args...))
}
func (t *trial) Failed() bool     { return len(t.failures) > 0 }
func (t *trial) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// TempDir returns a folder that is removed in the end.
func (t *trial) TempDir() string {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// try makes one try.
func try(p Program, run func(*lab, Program)) *trial {
	t := &trial{}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			for i := len(t.cleanups) - 1; i >= 0; i-- {
				t.cleanups[i]()
			}
		}()
		l := newLab(t, p.Length)
		run(l, p)
		l.exclusive(p.Kills)
		l.wellFormed()
	}()
	<-over
	return t
}

// check makes tries until one succeeds.
func check(t *testing.T, p Program, run func(*lab, Program)) {
	t.Helper()
	for n := 1; ; n++ {
		result := try(p, run)
		text := strings.Join(append(result.failures, result.logs...), "\n")
		switch {
		case result.skipped != "":
			t.Skip(result.skipped)
		case !result.Failed():
			return
		case n == tries:
			t.Fatalf("failed %d times:\n%s", n, text)
		}
		t.Logf("failed with takes of %v; trying again with longer ones:\n%s", p.Length, text)
		p.Length += p.Length / 2 / time.Second * time.Second
	}
}
