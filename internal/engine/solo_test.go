package engine

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// A rota of one owns everything at once, its duties included, tells so in its status, and leaves when it is asked to.
func TestSoloOwnsEverythingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(nil, Options{Solo: true, Slots: 64})
		require.NoError(t, err)
		var epoch uint64
		begun, ended := make(chan struct{}), false
		err = r.Duty("report", func(ctx context.Context) error {
			epoch, _ = gate.EpochFrom(ctx)
			close(begun)
			<-ctx.Done()
			ended = true
			return nil
		})
		require.NoError(t, err)
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		err = r.Work(ctx, func(work context.Context) {
			<-begun
			synctest.Wait()
			s := r.Status()
			if all := slot.Count(64).All(); s.Owned != all || s.Open != all || s.Members != 1 || s.TableGone {
				t.Errorf("status %+v, want all slots owned and open by the only member", s)
			}
			if len(s.Duties) != 1 || !s.Duties[0].Running || s.Duties[0].Owner != r.ID() {
				t.Errorf("duties %+v, want the one running here", s.Duties)
			}
			if !r.Owns(secretKind, types.NamespacedName{Namespace: "a", Name: "b"}) || epoch == 0 {
				t.Errorf("it does not own an object, or has no epoch (%d)", epoch)
			}
			if waited := time.Since(start); waited > 0 {
				t.Errorf("it waited %v, want nothing to wait for", waited)
			}
			cancel()
			<-work.Done()
		})
		if err != nil || !ended || r.gate.Working() != (slot.Set{}) {
			t.Errorf("error %v, duty ended %t, open at the end %v", err, ended, r.gate.Working())
		}
	})
}

func TestSoloOptions(t *testing.T) {
	r, err := New(nil, Options{Solo: true, Delivery: sharding.ShardSelector, Label: true})
	require.NoError(t, err)
	if r.opts.Delivery != sharding.Filter || r.opts.Label || r.cfg.Key != slot.KeyUID {
		t.Errorf("delivery %v, label %t, key %v, want Filter and the key that ShardSelector has", r.opts.Delivery, r.opts.Label,
			r.cfg.Key)
	}
	g, err := group.Parse("program", []string{"a"}, "*")
	require.NoError(t, err)
	_, err = New(nil, Options{Solo: true, Group: g})
	require.ErrorSays(t, err, "Options.Group")
	_, err = New(nil, Options{Name: "web", Namespace: "operators"})
	require.ErrorSays(t, err, "Solo")
}

// This program is one that go test built.
func TestTestsAreTold(t *testing.T) {
	if !isTest() {
		t.Error("a test counts as a program")
	}
}

// R9: the rota is left while informers and workers still work, and they end then.
func TestR9WorkLeavesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		r.store = memory.New().Client(nil)
		name := types.NamespacedName{Namespace: "a", Name: "b"}
		ctx, cancel := context.WithCancel(t.Context())
		owned, left := false, false
		err := r.Work(ctx, func(work context.Context) {
			<-r.Joined()
			for !r.Owns(secretKind, name) {
				<-time.After(time.Second)
			}
			owned = true
			cancel()
			<-work.Done()
			left = !r.Owns(secretKind, name)
		})
		require.NoError(t, err)
		if !owned || !left {
			t.Errorf("owned %t, left before the work ended %t, want both", owned, left)
		}
	})
}

func TestWorkThatEndsByItselfIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		r.store = memory.New().Client(nil)
		if err := r.Work(t.Context(), func(context.Context) { <-r.Joined() }); err == nil {
			t.Error("Work returned nil, want an error: nobody works any more")
		}
	})
}

type connKey struct{}

// A process that ends its member, and goes on, keeps no connections of it.
func TestRunClosesItsStore(t *testing.T) {
	var told, closed atomic.Pointer[net.Conn] // the connection by which an event came, and that one once it is closed
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, "/events") {
			http.NotFound(w, req)
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		conn := req.Context().Value(connKey{}).(net.Conn)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"x"}}`)
		told.Store(&conn)
	}))
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if by := told.Load(); state == http.StateClosed && by != nil && *by == conn {
			closed.Store(&conn)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	r, err := New(&rest.Config{Host: server.URL},
		Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"}})
	require.NoError(t, err)
	r.store.Notify(t.Context(), member.Notify{Reason: "Lapsed", Message: "m"})
	until(t, "the event is sent", func() bool { return told.Load() != nil })
	if closed.Load() != nil {
		t.Fatal("the connection was closed before Run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, r.Run(ctx))
	until(t, "the connection is closed", func() bool { return closed.Load() != nil })
}
