package rotatest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"

	"github.com/rota-dev/rota/test/habits"
)

func TestCallback(t *testing.T) {
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the time is over"))
	late := make(chan struct{})
	defer close(late)
	for _, c := range []struct {
		name string
		ctx  context.Context
		call func() error
		want string
	}{
		{"returns", t.Context(), func() error { return nil }, ""},
		{"an error", t.Context(), func() error { return errors.New("mine") }, "Options.Setup: mine"},
		{"t.FailNow", t.Context(), func() error { runtime.Goexit(); return nil },
			"Options.Setup ended its goroutine, as t.FailNow, t.Fatal, t.Skip and require do: return the error instead"},
		{"it heeds its context", over, func() error { <-over.Done(); return context.Cause(over) },
			"Options.Setup: the time is over"},
		{"it hangs", over, func() error { <-late; return nil }, "the time is over, and Options.Setup has not returned"},
		{"a panic", t.Context(), func() error { panicky(); return nil }, "Options.Setup panicked: oh\n\ngoroutine "},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := callback(c.ctx, "Options.Setup", c.call)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("got %v, want an error that begins with %q", err, c.want)
			}
			var p *panicError
			if errors.As(err, &p) && !strings.Contains(p.stack, "rotatest.panicky(") {
				t.Errorf("the stack is not that of the panic: %s", p.stack)
			}
		})
	}
}

func panicky() { panic("oh") }

// Run panics when it has cleaned up, whatever the panic came with.
func TestPanicsAgain(t *testing.T) {
	defer func() {
		if p, ok := recover().(*panicError); !ok || p.value != "oh" {
			t.Errorf("it did not panic with the callback's value: %v", p)
		}
	}()
	err := callback(t.Context(), "Options.Setup", func() error { panicky(); return nil })
	repanic(nil)
	repanic(errors.New("no panic"))
	repanic(errors.Join(errors.New("what the clean-up said"), &phaseError{creating, err}))
}

// Wherever a callback ends its goroutine or panics, the run fails at once, and its objects are deleted.
func TestCallbacksThatDoNotReturn(t *testing.T) {
	const ended = " ended its goroutine, as t.FailNow"
	for i, c := range []struct {
		name, fault string
		how         func(*Options)
		says        string
	}{
		{"Setup", "kill", func(o *Options) {
			n, setup := 0, o.Setup
			o.Setup = func(mgr *ctrlrt.Manager) error {
				if n++; n > 3 { // a successor of somebody who was killed
					runtime.Goexit()
				}
				return setup(mgr)
			}
		}, `phase "create": Options.Setup` + ended},
		{"Change", "kill", func(o *Options) {
			n, change := 0, o.Change
			o.Change = func(ctx context.Context, c client.Client) error {
				if n++; n > 1 {
					runtime.Goexit()
				}
				return change(ctx, c)
			}
		}, `phase "change": Options.Change` + ended},
		{"Settled", "reference", func(o *Options) {
			o.Settled = func(context.Context, client.Client) (bool, error) { runtime.Goexit(); return true, nil }
		}, `phase "create": Options.Settled` + ended},
		{"Normalize", "reference", func(o *Options) {
			o.Normalize = func(*unstructured.Unstructured) { panicky() }
		}, `phase "create": Options.Normalize panicked: oh`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 0 {
				slow(t)
			}
			begun := time.Now()
			failed := try(t, habits.Correct, func(o *Options, _ *kit) { c.how(o) }, c.fault)
			if !strings.Contains(failed[c.fault], c.says) {
				t.Errorf("the report of %s does not say %q: %s", c.fault, c.says, failed[c.fault])
			}
			if took := time.Since(begun); took > defaultPatience {
				t.Errorf("it took %v", took)
			}
		})
	}
}
