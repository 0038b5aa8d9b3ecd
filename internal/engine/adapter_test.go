package engine

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/rota-dev/rota/internal/adapter"
)

// Programs can make a zero value of a type that they cannot name.
func TestAdaptNeedsAccess(t *testing.T) {
	zero := func() { call(testRota(t).Adapt) }
	defer func() {
		if recover() == nil {
			t.Error("got the parts without access")
		}
	}()
	zero()
}

func call[A, P any](f func(A) P) {
	var a A
	f(a)
}

// Without a logger of its own a rota logs where its manager does, once there is one and it drops not everything.
func TestLogTo(t *testing.T) {
	var lines []string
	to := func(prefix string) logr.Logger {
		return funcr.New(func(_, line string) { lines = append(lines, prefix+line) }, funcr.Options{})
	}
	other := newLogSink(to("default "))
	r := testRotaLogging(t, logr.New(other))
	log := r.log
	log.Info("one")
	r.Adapt(adapter.Grant()).LogTo(logr.Discard())
	r.Adapt(adapter.Grant()).LogTo(funcr.New(nil, funcr.Options{Verbosity: -1}))
	log.Info("two")
	r.Adapt(adapter.Grant()).LogTo(to("manager "))
	log.WithValues("a", 1).Info("three")
	own := testRotaLogging(t, to("own "))
	own.Adapt(adapter.Grant()).LogTo(to("manager "))
	own.log.Info("four")
	for i, want := range []string{"default ", "default ", "manager ", "own "} {
		if !strings.HasPrefix(lines[i], want) || !strings.Contains(lines[i], `"rota"=`) {
			t.Errorf("line %d: %s, want one of %s", i, lines[i], want)
		}
	}
}
