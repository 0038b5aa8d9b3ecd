package ctrlrt_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

// R14: nothing is found while all is well, be it that a member joins and another one leaves; an object that its owner
// has lost, and a slot that two members say they work on, are found.
func TestR14Coverage(t *testing.T) {
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for i := range 60 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("secret-%d", i)}}
		if err := c.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	o := rota.Options{Delivery: sharding.SlotLabel, LabelNamespaces: []string{metav1.NamespaceAll},
		ScrubPeriod: 500 * time.Millisecond}
	a, b := startParent(t, namespace, "a", o), startParent(t, namespace, "b", o)
	eventually(t, 30*time.Second, settled(a, b))
	// As long as members come and go nothing may be found.
	moving, calm := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer calm()
	watch := func(m *replica) {
		watching.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for moving.Err() == nil {
				for _, f := range m.Rota().Status().Findings {
					t.Errorf("%s: %v, although all is well", m.Rota().ID(), f)
					return
				}
				<-tick.C
			}
		})
	}
	watch(a)
	watch(b)
	d := startParent(t, namespace, "d", o)
	eventually(t, 30*time.Second, settled(a, b, d))
	a.leave(t)
	eventually(t, 30*time.Second, settled(b, d))
	watch(d)
	members := []*replica{b, d}
	before := b.Rota().Status().Scrubs + d.Rota().Status().Scrubs
	// scrubbed counts what members have found, by kind, and how often they have looked.
	scrubbed := func(what coverage.What) (found int, scrubs uint64) {
		for _, m := range members {
			s := m.Rota().Status()
			for _, f := range s.Findings {
				if f.What == what || what == coverage.WhatUnknown {
					found++
				}
			}
			scrubs += s.Scrubs
		}
		return found, scrubs
	}
	eventually(t, 30*time.Second, func() string {
		if _, scrubs := scrubbed(coverage.WhatUnknown); scrubs < before+4 {
			return fmt.Sprintf("%v scrubs, want some", scrubs)
		}
		return ""
	})
	calm()
	watching.Wait()
	t.Run("orphan", func(t *testing.T) {
		informer, err := b.InnerCache().GetInformer(t.Context(), &corev1.Secret{})
		if err != nil {
			t.Fatal(err)
		}
		objects := informer.(toolscache.SharedIndexInformer).GetStore()
		var lost any
		for _, obj := range objects.List() {
			secret := obj.(*corev1.Secret)
			if b.Rota().Owns(secretKind, types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}) {
				lost = obj
			}
		}
		begun := time.Now()
		if err := objects.Delete(lost); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, func() string {
			if n, _ := scrubbed(coverage.Differs); n != 1 {
				return fmt.Sprintf("%d findings of an object that its owner lost, want 1", n)
			}
			return ""
		})
		t.Logf("found after %v, lease %v", time.Since(begun), leaseDuration)
		if err := objects.Add(lost); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, func() string {
			if n, _ := scrubbed(coverage.Differs); n != 0 {
				return "it is still found, though the owner has it again"
			}
			return ""
		})
	})
	t.Run("two owners", func(t *testing.T) {
		reports, err := coverage.NewReports(controlplane.For(t).Config(), namespace, "test")
		if err != nil {
			t.Fatal(err)
		}
		// b says that it works on a slot of d's, too.
		all, err := reports.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var mine *coverage.Report
		var foreign slot.Slot
		for _, r := range all {
			if age := time.Since(r.Written); age < -time.Minute || age > time.Minute {
				t.Errorf("the report of %s was written %v ago", r.Member, age)
			}
			if r.Member == b.Rota().ID() {
				mine = r
			} else {
				foreign = r.Open.Slots()[0]
			}
		}
		mine.Open.Add(foreign)
		lease := &coordinationv1.Lease{}
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: names.Lease("test", mine.Member)},
			lease); err != nil {
			t.Fatal(err)
		}
		// It says so until it is believed: b's own report comes in between.
		mine.Serial += 1000
		eventually(t, 30*time.Second, func() string {
			mine.Serial++
			if err := reports.Publish(t.Context(), mine, lease.UID); err != nil {
				return err.Error()
			}
			if n, _ := scrubbed(coverage.Doubled); n != 1 {
				return fmt.Sprintf("%d findings of a slot with two owners, want 1", n)
			}
			return ""
		})
	})
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// isReport says whether a request writes what a member holds.
func isReport(r *http.Request) bool {
	if r.Method == http.MethodPut || r.GetBody == nil {
		return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".report")
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	text, err := io.ReadAll(body)
	return err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/leases") &&
		strings.Contains(string(text), names.LabelCoverage)
}

// R14: an API server that has just started may refuse what it permits a moment later. A member that was refused when it
// told what it holds tells it again.
func TestR14ReportsAfterARefusal(t *testing.T) {
	t.Parallel()
	namespace := controlplane.Namespace(t)
	cfg := controlplane.For(t).Config()
	var refusals atomic.Int64
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !isReport(r) || refusals.Add(1) > 2 {
				return next.RoundTrip(r)
			}
			text := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
				`"message":"leases.coordination.k8s.io is forbidden: User \"x\" cannot update it"}`
			return &http.Response{
				StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(text)), Request: r,
			}, nil
		})
	})
	m := startMemberVia(t, cfg, namespace, "a", rota.Options{}, func(mgr *ctrlrt.Manager) error {
		return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, nil
			}))
	})
	reports, err := coverage.NewReports(controlplane.For(t).Config(), namespace, "test")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() string {
		all, err := reports.Read(t.Context())
		if err != nil {
			return err.Error()
		}
		if len(all) != 1 || all[0].Member != m.Rota().ID() || refusals.Load() < 3 {
			return fmt.Sprintf("%d reports after %d writes, want that of %s", len(all), refusals.Load(), m.Rota().ID())
		}
		return ""
	})
}
