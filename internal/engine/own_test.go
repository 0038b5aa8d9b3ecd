package engine

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/test/require"
)

// A reconcile begins when the cache shows what this member wrote to its object, by a subresource, too. It does not wait
// for long, and not at all for a while after that was in vain.
func TestReconcilesFindWhatWasWritten(t *testing.T) {
	inLab(t, func(l *lab) {
		t := l.t
		name := types.NamespacedName{Namespace: "a", Name: "x"}
		_, err := l.objects.Create(t.Context(), name, nil)
		require.NoError(t, err)
		m := l.start("a")
		l.wait(time.Minute)
		reconcile := func(during func(context.Context)) (waited time.Duration) {
			t.Helper()
			if !m.controller.Add(name) {
				t.Fatal("not its object")
			}
			m.controller.Take(name)
			begun := time.Now()
			ctx, ok := m.controller.Admit(t.Context(), name)
			if waited = time.Since(begun); !ok {
				t.Fatal("not admitted")
			}
			if during != nil {
				during(ctx)
			}
			m.controller.Done(name)
			return waited
		}
		written := ""
		write := func(sub string, code int) func(context.Context) {
			return func(ctx context.Context) {
				t.Helper()
				q := request{method: http.MethodPut, path: path + "/x" + sub, body: configMap("x", "", ""), code: code}
				if code == 0 {
					obj, err := l.objects.Update(t.Context(), name)
					require.NoError(t, err)
					written = obj.Version
					q.answer = configMap("x", written, "")
				}
				_, err := q.send(ctx, t, m.Engine)
				require.NoError(t, err)
			}
		}
		cached := func() string {
			obj, _, err := m.informer.GetStore().GetByKey(name.String())
			if err != nil || obj == nil {
				t.Fatal(obj, err)
			}
			return obj.(*corev1.ConfigMap).ResourceVersion
		}
		want := func(when string, got, least, most time.Duration) {
			t.Helper()
			if got < least || got > most {
				t.Errorf("%s: waited %v, want %v to %v", when, got, least, most)
			}
		}
		for _, sub := range []string{"", "/status"} {
			resume := m.requests.Pause()
			want("nothing was written", reconcile(write(sub, 0)), 0, 0)
			time.AfterFunc(30*time.Millisecond, resume)
			want("shown after 30 ms", reconcile(func(context.Context) {
				if got := cached(); got != written {
					t.Errorf("the cache has version %s, want %s", got, written)
				}
			}), 30*time.Millisecond, 40*time.Millisecond)
			want("shown", reconcile(nil), 0, 0)
		}

		resume := m.requests.Pause()
		reconcile(write("", http.StatusConflict))
		want("refused", reconcile(write("", 0)), 0, 0)
		want("not shown", reconcile(nil), 100*time.Millisecond, 110*time.Millisecond)
		want("waited in vain just now", reconcile(nil), 0, 0)
		time.Sleep(time.Second)
		want("a second later", reconcile(nil), 100*time.Millisecond, 110*time.Millisecond)
		resume()
		synctest.Wait()
		time.Sleep(time.Second)
		want("shown at last", reconcile(nil), 0, 0)
	})
}

// A controller does not wait for what another one wrote: its reconcile meets the cache as it is, as in a stock process.
func TestOnlyTheControllersOwnWritesAreWaitedFor(t *testing.T) {
	inLab(t, func(l *lab) {
		t := l.t
		name := types.NamespacedName{Namespace: "a", Name: "x"}
		_, err := l.objects.Create(t.Context(), name, nil)
		require.NoError(t, err)
		var other *controllers.Controller
		l.setup = func(m *labMember) {
			var err error
			if other, err = m.newTestController("other", labKind, ignore); err != nil {
				t.Fatal(err)
			}
			other.Started()
		}
		m := l.start("a")
		l.wait(time.Minute)
		defer m.requests.Pause()()
		reconcile := func(c *controllers.Controller, during func(context.Context)) (waited time.Duration) {
			t.Helper()
			c.Add(name)
			c.Take(name)
			begun := time.Now()
			ctx, ok := c.Admit(t.Context(), name)
			if waited = time.Since(begun); !ok {
				t.Fatal("not admitted")
			}
			during(ctx)
			c.Done(name)
			return waited
		}
		nothing := func(context.Context) {}
		reconcile(m.controller, func(ctx context.Context) {
			obj, err := l.objects.Update(t.Context(), name)
			require.NoError(t, err)
			q := request{method: http.MethodPut, path: path + "/x", body: configMap("x", "", ""),
				answer: configMap("x", obj.Version, "")}
			_, err = q.send(ctx, t, m.Engine)
			require.NoError(t, err)
		})
		if waited := reconcile(other, nothing); waited != 0 {
			t.Errorf("the other controller waited %v for a write that was not its own", waited)
		}
		if waited := reconcile(m.controller, nothing); waited == 0 {
			t.Errorf("the controller did not wait for its own write")
		}
	})
}
