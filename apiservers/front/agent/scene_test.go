package agent

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/test/require"
)

// failOver is what the front promises for the time until a client's request is answered by another server. With
// MEASURE=1 the test holds it to that, else to less than clients take to give up, for busy machines.
const failOver = 2 * time.Second

// TestFront: a static API server and two of a Deployment behind HAProxy, with clients. It begins cold. Then the servers
// are killed one after the other, and all, and one hangs, and one leaves. At the end it is cold again.
func TestFront(t *testing.T) {
	begun := time.Now()
	w := newWorld(t)
	if os.Getenv("MEASURE") == "" {
		// The suite's machines are busy. A server that stops while a check waits for its answer is down only after that
		// answer's time, and the second check's.
		w.describe(func(f *front.Front) {
			f.Interval.Duration, f.Timeout.Duration = 2*time.Second, 2*time.Second
			f.AnswerTimeout.Duration = 8 * time.Second
		})
	}
	static, one, two := w.front.Static[0], w.deploy[0], w.deploy[1]
	both := []*apiServer{one, two}

	one.start(t) // they take seconds, meanwhile
	two.start(t)
	// As on a host whose kubeconfig is of before: the agent has to see that there is another.
	require.NoError(t, w.plane.WriteUserKubeconfig(w.credentials, "nobody"))
	w.startFront()
	l := startLoad(t, w.plane.Config(), w.front.Listen)
	phase := func(what string) outcome {
		t.Helper()
		before := l.gets()
		w.until(what, func() string { return l.settled(before) })
		o := l.take()
		t.Logf("%5.1fs %-32s %v", time.Since(begun).Seconds(), what, o)
		if o.failed > 0 {
			t.Errorf("%s: %d of %d gets failed: %v", what, o.failed, o.gets, o.why)
		}
		bound := 10 * failOver
		if os.Getenv("MEASURE") != "" {
			bound = failOver
		}
		if bound = min(bound, giveUp-time.Second); o.longest > bound || o.rewatch > bound {
			t.Errorf("%s: longest without an answer %v, watch %v", what, o.longest, o.rewatch)
		}
		return o
	}
	calm := func(what string) {
		t.Helper()
		if o := phase(what); o.retried > 0 || o.rewatch > 0 {
			t.Errorf("%s: %v, but nobody had to notice", what, o)
		}
	}
	// deployed: all clients are at servers of the Deployment, that are up.
	deployed := func(up ...*apiServer) func(map[string]row) bool {
		return func(r map[string]row) bool {
			sessions := 0
			for _, s := range both {
				if sessions += r[s.address].sessions; slices.Contains(up, s) != (r[s.address].status == "UP") {
					return false
				}
			}
			return r[static].sessions == 0 && sessions >= clients
		}
	}
	kill := func(s *apiServer) {
		t.Helper()
		phase("before")
		s.kill()
	}

	cold := w.rowsAre("cold: all clients at the static server", func(r map[string]row) bool {
		return len(r) == 1 && r[static].sessions >= clients
	})
	t.Logf("cold start: clients are served after %v", cold)
	phase("cold, static only")
	for _, s := range both {
		w.until("a server of the Deployment", s.lingers)
	}
	w.until("the agent may not read EndpointSlices", func() string {
		if w.says("forbidden") == 0 {
			return "it has not said so"
		}
		return ""
	})
	w.useKubeconfig()
	w.until("the agent may", func() string {
		if w.says("are followed again") == 0 {
			return "it has not said so"
		}
		return ""
	})
	if n := w.says("forbidden"); n > 3 || w.says("has changed") != 1 { // more than once if something else came between
		t.Errorf("the agent told %d times that it may not read EndpointSlices, want once", n)
	}
	l.take()
	w.publish(&endpoint{ready: true}, &endpoint{ready: true})
	t.Logf("at priority 0 after %v", w.rowsAre("the Deployment has come", deployed(both...)))
	phase("the Deployment comes")

	kill(one)
	w.rowsAre("one is killed", deployed(two))
	phase("killed " + one.address)
	one.start(t)
	require.NoError(t, w.plane.KillServer("apiserver-0"))
	w.rowsAre("the static one is killed", func(r map[string]row) bool { return r[static].status == "DOWN" })
	require.NoError(t, w.plane.StartServer("apiserver-0"))
	w.rowsAre("the static one is back", func(r map[string]row) bool { return r[static].status == "UP" })
	w.rowsAre("one is back", deployed(both...))
	calm("killed the static one, and back")

	two.signal(t, syscall.SIGSTOP)
	w.rowsAre("two hangs", deployed(one))
	phase("hangs " + two.address)
	two.signal(t, syscall.SIGCONT)
	w.rowsAre("it goes on", deployed(both...))

	// etcd is away, for all servers. None is ready, so that a new connection can be to any. What needs no etcd works.
	phase("before")
	fresh := l.fresh(t)
	w.stallEtcd(5*time.Second, "no server is ready", func() string {
		rows, err := w.rows()
		for _, address := range []string{static, one.address, two.address} {
			if rows[address].status != "NOLB" {
				return fmt.Sprint(rows, err)
			}
		}
		return fresh()
	})
	w.rowsAre("etcd is back", func(r map[string]row) bool { return r[static].status == "UP" && deployed(both...)(r) })
	// A get that needs etcd waits for it, and longer than 5 s on a busy machine. No watch does.
	if o := l.take(); o.rewatch > 0 {
		t.Errorf("etcd was away for 5 s: %v, but watches need no etcd", o)
	} else {
		t.Logf("%5.1fs %-32s %v", time.Since(begun).Seconds(), "etcd was away for 5 s", o)
	}

	kill(two)
	w.rowsAre("two is killed", deployed(one))
	phase("killed " + two.address)
	kill(one)
	w.rowsAre("all to the static server", func(r map[string]row) bool { return r[static].sessions >= clients })
	phase("killed the whole Deployment")
	one.start(t)
	w.rowsAre("one is back", deployed(one))
	phase("the Deployment is back")

	// A server leaves: its endpoint terminates first, as when a Pod is deleted. Clients go when it says so.
	w.publish(&endpoint{ready: false, terminating: true}, &endpoint{ready: true})
	w.rowsAre("it drains", func(r map[string]row) bool { return r[one.address].weight == 0 })
	w.publish(nil, &endpoint{ready: true})
	for begun := time.Now(); time.Since(begun) < 2*again; {
		calm("drains " + one.address)
	}
	one.signal(t, syscall.SIGTERM)
	_ = one.cmd.Wait()
	w.rowsAre("it is gone", func(r map[string]row) bool {
		_, there := r[one.address]
		return !there && r[static].sessions >= clients
	})
	phase("left " + one.address)
	if n := w.cut.Load(); n > 0 {
		t.Errorf("HAProxy says %d times that a server was taken out before it was down", n)
	}

	// Another static server, that nobody has started. This takes a reload, in which connections go on.
	w.stopAgent()
	w.describe(func(f *front.Front) { f.Static = append(f.Static, "10.0.2.1:6443") })
	w.startAgent()
	w.rowsAre("there is another static server", func(r map[string]row) bool { return r["10.0.2.1:6443"].status == "DOWN" })
	calm("reload")

	// Cold again: nothing answers, and what was known is still there.
	w.stopFront()
	require.NoError(t, w.plane.KillServer("apiserver-0"))
	w.startFront()
	w.rowsAre("the servers known from before", func(r map[string]row) bool {
		return len(r) == 3 && r[two.address].status == "DOWN" && r[static].status == "DOWN"
	})
	require.NoError(t, w.plane.StartServer("apiserver-0"))
	w.rowsAre("the static one serves", func(r map[string]row) bool { return r[static].sessions >= clients })
}
