package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/election"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

var electionLease = types.NamespacedName{Namespace: "operators", Name: "website-operator"}

// leaseLock is a lock of client-go on the store.
type leaseLock struct {
	store.Elections
	id      string
	version string
	cut     *atomic.Bool
	stands  *atomic.Bool
}

// send returns an error if a request cannot be sent: as an HTTP client, when its context is over.
func (l *leaseLock) send(ctx context.Context) error {
	for l.stands.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	if l.cut.Load() {
		return memory.ErrLost
	}
	return ctx.Err()
}

func (l *leaseLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.send(ctx); err != nil {
		return nil, nil, err
	}
	r, err := l.ReadElection(ctx, electionLease)
	if err != nil {
		return nil, nil, err
	}
	if r.Version == "" {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, electionLease.Name)
	}
	l.version = r.Version
	record := &resourcelock.LeaderElectionRecord{
		HolderIdentity: r.Holder, LeaseDurationSeconds: int(r.Duration / time.Second), LeaderTransitions: int(r.Transitions),
		AcquireTime: metav1.Unix(r.Acquired, 0), RenewTime: metav1.Unix(r.Renewed, 0),
	}
	raw, err := json.Marshal(record)
	return record, raw, err
}

func (l *leaseLock) put(ctx context.Context, version string, r resourcelock.LeaderElectionRecord) error {
	if err := l.send(ctx); err != nil {
		return err
	}
	out, _, err := l.WriteElection(ctx, electionLease, election.Record{
		Version: version, Holder: r.HolderIdentity, Duration: time.Duration(r.LeaseDurationSeconds) * time.Second,
		Acquired: r.AcquireTime.Unix(), Renewed: r.RenewTime.Unix(), Transitions: int32(r.LeaderTransitions),
	}, time.Second)
	if err == nil {
		l.version = out.Version
	}
	return err
}

func (l *leaseLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.put(ctx, "", r)
}

func (l *leaseLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.put(ctx, l.version, r)
}
func (*leaseLock) RecordEvent(string) {}
func (l *leaseLock) Identity() string { return l.id }
func (l *leaseLock) Describe() string { return l.id }

// stockReplica is a replica with client-go's leader election.
type stockReplica struct {
	// stands: it is stopped (SIGSTOP) when it sends its next request.
	leads, cut, stands atomic.Bool
	end                context.CancelFunc
	ended              chan struct{}
}

func (l *lab) startStock(id string, release bool) *stockReplica {
	l.t.Helper()
	s := &stockReplica{ended: make(chan struct{})}
	kept := l.memory.Client(func(context.Context, memory.Op, bool) error {
		time.Sleep(time.Millisecond)
		return nil
	})
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          &leaseLock{Elections: kept, id: id, cut: &s.cut, stands: &s.stands},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: release, Name: id,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { s.leads.Store(true) },
			OnStoppedLeading: func() { s.leads.Store(false) },
		},
	})
	require.NoError(l.t, err)
	l.t.Cleanup(func() { s.stands.Store(false) }) // a test that fails has to end
	ctx, end := context.WithCancel(l.t.Context())
	s.end = end
	go func() {
		defer close(s.ended)
		e.Run(ctx)
	}()
	return s
}

// stop is SIGTERM: work has ended before the Lease is released.
func (s *stockReplica) stop() {
	s.leads.Store(false)
	s.end()
	<-s.ended
}

func withElection(o *Options) { o.LeaderElectionID = electionLease.Name }

// watchSides fails the test if a stock replica and a member that was started work at one moment. The returned function ends it.
func (l *lab) watchSides(stock ...*stockReplica) (end func()) {
	over, done, members := make(chan struct{}), make(chan struct{}), slices.Clone(l.members)
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
			}
			for _, s := range stock {
				for _, m := range members {
					if open := m.Status().Open; s.leads.Load() && !open.Empty() {
						l.t.Errorf("%v: a stock replica leads, and member %s works on %d slots", time.Now(), m.pod, open.Len())
						return
					}
				}
			}
		}
	}()
	return func() { close(over); <-done }
}

// until waits until something is so, and says how long that took.
func (l *lab) until(what string, limit time.Duration, is func() bool) time.Duration {
	l.t.Helper()
	return l.poll(what, limit, 20*time.Millisecond, func() bool { synctest.Wait(); return is() })
}

// each is until with a look each millisecond, some of them between what happens at one moment.
func (l *lab) each(what string, limit time.Duration, is func() bool) {
	l.t.Helper()
	l.poll(what, limit, time.Millisecond, is)
}

func (l *lab) poll(what string, limit, period time.Duration, is func() bool) time.Duration {
	l.t.Helper()
	begun := time.Now()
	for !is() {
		if time.Since(begun) > limit {
			l.t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(period)
	}
	return time.Since(begun)
}

func (m *labMember) works() bool { open := m.Status().Open; return !open.Empty() }

// Members join and are ready while a stock replica leads, work when it has released the Lease, and give it back when
// the last of them has left.
func TestRotaTakesTurnsWithLeaderElection(t *testing.T) {
	inLab(t, func(l *lab) {
		stock := l.startStock("stock-0", true)
		l.until("the stock replica leads", 5*time.Second, stock.leads.Load)
		a, b := l.start("web-0", withElection), l.start("web-1", withElection)
		defer l.watchSides(stock)()
		l.until("both members are ready", time.Minute, func() bool { return a.Ready(nil) == nil && b.Ready(nil) == nil })
		l.wait(2 * time.Minute)
		for _, m := range []*labMember{a, b} {
			s := m.Status()
			want := `waits for leader election's Lease operators/website-operator, held by "stock-0"`
			if !strings.Contains(s.Waiting, want) || !s.Open.Empty() || s.Owned.Empty() {
				t.Errorf("status %q, %d slots open and %d owned; want %q", s.Waiting, s.Open.Len(), s.Owned.Len(), want)
			}
			m.want("it waits", "rota_elected", "", 0)
			if got := m.settings()[coverage.SettingElection]; got != electionLease.String() {
				t.Errorf("the member reports the Lease %q", got)
			}
		}
		if n := l.events(); n["NotElected"] < 2 || n["Lapsed"] > 0 || n["Coverage"] > 0 {
			t.Errorf("events %v", n)
		}

		stock.stop()
		both := func() bool { return a.works() && b.works() }
		took := l.until("both members work", 10*time.Second, both)
		t.Logf("both members worked %v after the leader's end", took)
		l.wait(time.Minute)
		for _, m := range []*labMember{a, b} {
			if s := m.Status(); s.Waiting != "" || s.Open.Len() != 128 {
				t.Errorf("status %q with %d slots open", s.Waiting, s.Open.Len())
			}
			m.want("it works", "rota_elected", "", 1)
		}
		waited := l.events()["NotElected"]
		c := l.start("web-2", withElection)
		l.until("the third works", 10*time.Second, c.works)
		l.wait(10 * time.Second)
		c.stop()
		if n := l.events()["NotElected"] - waited; n > 0 {
			t.Errorf("a member that joined told %d times that the rota was not elected, which it was", n)
		}

		back := l.startStock("stock-1", true)
		defer back.stop()
		defer l.watchSides(back)()
		l.wait(time.Minute)
		a.stop()
		l.wait(time.Minute)
		if back.leads.Load() || !b.works() {
			t.Errorf("while a member is left: leads %t, works %t", back.leads.Load(), b.works())
		}
		b.stop()
		took = l.until("the stock replica leads", 10*time.Second, back.leads.Load)
		t.Logf("the stock replica led %v after the last member's end", took)
	})
}

// A stock leader that stood still in the middle of a renewal clears the Lease when it wakes, although the rota has it by
// then: client-go's release goes by the record that it saw before. A stock replica that waits takes it. Members hear of
// that and stop at once; without a watch at their next look.
func TestElectionsLeaseIsClearedByALeaderThatStoodStill(t *testing.T) {
	for name, limit := range map[string]time.Duration{"heard": 0, "seen": 2500*time.Millisecond + replica.LookEvery} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				zombie := l.startStock("zombie", true)
				l.until("it leads", 5*time.Second, zombie.leads.Load)
				l.setup = func(m *labMember) {
					m.fail(func(op memory.Op) error {
						if op == memory.OpWatchElection && limit > 0 {
							return memory.ErrLost
						}
						return nil
					})
				}
				a, b := l.start("web-0", withElection), l.start("web-1", withElection)
				l.wait(time.Minute)
				zombie.stands.Store(true)
				l.until("members work", time.Minute, func() bool { return a.works() && b.works() })
				var others []*stockReplica
				for n := range 3 {
					others = append(others, l.startStock(fmt.Sprintf("stock-%d", n), true))
				}
				l.wait(30 * time.Second)
				flight, leave := l.enter(a)
				defer leave()
				before := l.election()
				if before.Holder != a.candidacy().Holder {
					t.Fatalf("the Lease says %+v", before)
				}
				// It reads the Lease, and clears what it read: a renewal in between would save the rota.
				l.each("the rota renews", time.Minute, func() bool { return l.election().Version != before.Version })
				zombie.stands.Store(false)
				l.each("it clears the Lease", time.Minute,
					func() bool { return l.election().Holder != a.candidacy().Holder })
				synctest.Wait()
				cleared, lasted := time.Now(), time.Duration(0)
				if r := l.election(); r.Holder != "" {
					t.Fatalf("the Lease says %+v, want it cleared", r)
				}
				leads := func() bool { return slices.ContainsFunc(others, func(s *stockReplica) bool { return s.leads.Load() }) }
				next := "" // who has it then
				for time.Since(cleared) < 20*time.Second {
					r := l.election()
					next = cmp.Or(next, r.Holder)
					if a.works() || b.works() {
						if r.Holder != a.candidacy().Holder {
							lasted = time.Since(cleared)
						}
						if leads() && time.Since(cleared) > limit {
							t.Fatalf("%v after the Lease was cleared, members and a stock replica work", time.Since(cleared))
						}
					}
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				// Without a watch, a member does not notice if another one takes it back for the rota before its next look.
				unnoticed := limit > 0 && next == a.candidacy().Holder
				if lasted > limit || flight.Err() == nil && !unnoticed {
					t.Errorf("members worked for %v after the Lease was cleared, want at most %v; in flight: %v", lasted, limit,
						flight.Err())
				}
				t.Logf("members worked for %v after the Lease was cleared", lasted)
				for _, s := range append(others, zombie) {
					s.stop()
				}
			})
		})
	}
}

// enter begins a reconcile at a member, in a slot that is open.
func (l *lab) enter(m *labMember) (ctx context.Context, leave func()) {
	l.t.Helper()
	open := m.Status().Open
	ctx, leave, verdict := m.gate.Enter(l.t.Context(), open.Slots()[0], gate.Key{Queue: "q", Name: "n"}, false)
	if verdict != gate.Admitted {
		l.t.Fatalf("not admitted: %v", verdict)
	}
	return ctx, leave
}

// A rota that finds no Lease at all takes it, but says that its name may be wrong. So does one that finds another rota's.
// It waits for the Lease while it waits for its new table.
func TestElectionWithoutALease(t *testing.T) {
	inLab(t, func(l *lab) {
		begun := time.Now()
		a := l.start("web-0", withElection)
		l.until("the member has seen that there is none", time.Minute, func() bool {
			return strings.Contains(a.Status().Waiting, "which does not exist; the rota creates it after 17.5s unless a")
		})
		l.until("the member works", time.Minute, a.works)
		if took := time.Since(begun); took > 23*time.Second {
			l.t.Errorf("it works after %v, want a lease, FenceDelay and two looks", took)
		}
		if got := a.settings()[coverage.SettingElection]; got != electionLease.String() {
			l.t.Errorf("it reports leader election's Lease as %q", got)
		}
		a.stop()
		_, _, err := l.memory.Client(nil).WriteElection(l.t.Context(), electionLease, election.Record{
			Version: l.election().Version, Holder: "rota:operators/other", Duration: time.Minute, Renewed: 1,
		}, time.Second)
		require.NoError(t, err)
		b := l.start("web-1", withElection)
		l.until("it names the other rota", time.Minute, func() bool {
			return strings.Contains(b.Status().Waiting, `held by "rota:operators/other"; that is another rota`)
		})
	})
}

// election is what the Lease says.
func (l *lab) election() election.Record {
	l.t.Helper()
	r, err := l.memory.Client(nil).ReadElection(l.t.Context(), electionLease)
	require.NoError(l.t, err)
	return r
}

// A member that can renew its own Lease but not leader election's stops, and goes on when it can.
func TestMemberStopsWithoutTheElectionsLease(t *testing.T) {
	inLab(t, func(l *lab) {
		a := l.start("web-0", withElection)
		l.until("the member works", time.Minute, a.works)
		for round := range 3 {
			a.fail(func(op memory.Op) error {
				if op == memory.OpWriteElection {
					return memory.ErrLost
				}
				return nil
			})
			took := l.until("the member stops", time.Minute, func() bool { return !a.works() })
			if took > 10*time.Second+replica.LookEvery+50*time.Millisecond {
				t.Errorf("it stopped after %v, want its RenewDeadline", took)
			}
			l.wait(time.Minute)
			if s := a.Status(); s.Waiting == "" || a.Ready(nil) != nil {
				t.Errorf("status %q, ready %v", s.Waiting, a.Ready(nil))
			}
			resume := a.requests.Pause()
			key := types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("written-%d", round)}
			_, err := l.objects.Create(t.Context(), key, nil)
			require.NoError(t, err)
			a.fault.Store(nil)
			l.until("the member works again", 10*time.Second, a.works)
			if _, there, err := a.informer.GetStore().GetByKey(key.String()); !there || err != nil {
				t.Errorf("the member works without %s, which another one may have written meanwhile (%v)", key, err)
			}
			resume()
		}
		a.fail(func(memory.Op) error { return memory.ErrLost })
		l.until("the member stops", time.Minute, func() bool { return !a.works() })
		l.wait(10 * time.Second)
		a.fault.Store(nil)
		l.until("the member works again", time.Minute, a.works)
		if n := l.events(); n["Lapsed"] != 4 || n["Elected"] < 5 {
			t.Errorf("events %v", n)
		}
		lapsed := 0
		for _, n := range l.memory.Notes() {
			if n.Reason == "Lapsed" {
				lapsed++
				if own := strings.Contains(n.Message, "no renewal of the Lease succeeded"); own != (lapsed == 4) {
					t.Errorf("lapse %d: %s", lapsed, n.Message)
				}
			}
		}
	})
}

func TestElectionOptions(t *testing.T) {
	g, err := group.Parse("program", []string{"a"}, "*")
	require.NoError(t, err)
	for want, o := range map[string]Options{
		"without LeaderElectionID":   {LeaderElectionNamespace: "other"},
		"not a valid name":           {LeaderElectionID: "A_B"},
		"LeaderElectionID and Group": {LeaderElectionID: "a", Group: g},
	} {
		o.Name, o.Namespace = "website", "operators"
		_, err := New(&rest.Config{}, o)
		require.ErrorSays(t, err, want)
	}
	r, err := New(&rest.Config{}, Options{Name: "website", Namespace: "operators", LeaderElectionID: "a.example.com"})
	if err != nil || r.opts.electionLease() != (types.NamespacedName{Namespace: "operators", Name: "a.example.com"}) {
		t.Errorf("Lease %v, error %v", r.opts.electionLease(), err)
	}
	r.Adapt(adapter.Grant()).Keep(someKeeper{})
	require.ErrorSays(t, r.Run(t.Context()), "dispatchers")
}

type someKeeper struct{ controllers.Keeper }

func (someKeeper) Kinds() []string { return []string{"Website"} }

// What is deleted while another one has the Lease is that one's business. Without one, members remember it.
func TestDeletionsAreLeftToTheLeader(t *testing.T) {
	r := testRota(t)
	defer r.closeStore()
	c := testController(t, r, "c", secretKind, ignore)
	r.share.Hold(r.cfg.Slots.All())
	owed := func() int { return undoneIn(c, r.cfg.Slots.All()) }
	r.opts.LeaderElectionID, r.opts.LeaderElectionNamespace = electionLease.Name, electionLease.Namespace
	r.store = memory.New().Client(nil)
	led := r.candidacy().LedElsewhere
	led(true)
	for n := range 10_000 {
		if c.Add(types.NamespacedName{Name: fmt.Sprint(n)}) {
			t.Fatal("a key is added while another one has the Lease")
		}
	}
	if n := owed(); n > 0 {
		t.Errorf("%d keys are remembered that the leader hears of", n)
	}
	led(false)
	if c.Add(types.NamespacedName{Name: "late"}); owed() != 1 {
		t.Errorf("%d keys are remembered of a time without a leader, want 1", owed())
	}
}
