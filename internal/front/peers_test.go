package front

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/dispatcher"
)

// TestPeers: a dispatcher is told of when it comes, and when it comes back, and is asked only over the scheme that this
// one has.
func TestPeers(t *testing.T) {
	cfg := &rest.Config{Host: "https://localhost:1"}
	r, err := rota.New(cfg, rota.Options{Name: "x", Namespace: "default", Identity: rota.Identity{Pod: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatcher.New(cfg, r, dispatcher.Options{
		Kinds: []dispatcher.Kind{{Kind: schema.GroupKind{Kind: "ConfigMap"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		other, self := NewProcess(), NewProcess()
		var reports []string
		found := 0
		p := newPeers(Options{
			Dispatcher: d, Logger: logr.Discard(), Process: self, URL: "https://10.0.0.9:8443",
			Reports: func(context.Context) ([]string, error) { return reports, nil },
		}, func() { found++ })
		look := func(told int, now ...string) {
			t.Helper()
			reports = now
			time.Sleep(time.Second)
			if err := p.look(t.Context(), p.looked+1); err != nil {
				t.Fatal(err)
			}
			if found != told {
				t.Errorf("%q: told %d times, want %d", now, found, told)
			}
		}
		at := other.At("https://10.0.0.1:8443")
		look(0, self.At("https://10.0.0.9:8443"))
		look(1, at)
		look(1, at)
		look(1)
		if p.has(other) || p.get(other) == nil {
			t.Error("it is asked although it has no report, or forgotten at once")
		}
		look(2, at)
		for _, bad := range []string{
			"http://10.0.0.2:80", "https://10.0.0.2/path", "https://u:p@10.0.0.2", "https://10.0.0.2?a=b", "https://", "",
		} {
			look(2, at, NewProcess().At(bad))
		}
		if all := p.all(); len(all) != 1 || all[0] != other {
			t.Errorf("asked: %v", all)
		}
	})
}
