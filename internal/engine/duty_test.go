package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/report"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// shift is a run of a duty.
type shift struct {
	pod   string
	epoch uint64
	began time.Time
	ended time.Time // zero: it goes on
	cause error
}

// roster records who does which duty.
type roster struct {
	t      *testing.T
	mu     sync.Mutex
	shifts map[string][]*shift
}

func newRoster(t *testing.T) *roster { return &roster{t: t, shifts: map[string][]*shift{}} }

// does returns a function for Duty that works until its context ends.
func (r *roster) does(pod, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		defer r.begin(ctx, pod, name)()
		<-ctx.Done()
		return ctx.Err()
	}
}

// begin notes that a run begins; the function that it returns notes that it ends.
func (r *roster) begin(ctx context.Context, pod, name string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	epoch, ok := gate.EpochFrom(ctx)
	if !ok {
		r.t.Errorf("%s does %s without an epoch", pod, name)
	}
	for _, other := range r.shifts[name] {
		if other.ended.IsZero() {
			r.t.Errorf("%s does %s while %s does", pod, name, other.pod)
		}
		if other.epoch > epoch {
			r.t.Errorf("%s does %s of epoch %d after %s of epoch %d", pod, name, epoch, other.pod, other.epoch)
		}
	}
	s := &shift{pod: pod, epoch: epoch, began: time.Now()}
	r.shifts[name] = append(r.shifts[name], s)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.ended, s.cause = time.Now(), context.Cause(ctx)
	}
}

// now returns who does which duty.
func (r *roster) now() map[string]string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]string{}
	for name, all := range r.shifts {
		for _, s := range all {
			if s.ended.IsZero() {
				out[name] = s.pod
			}
		}
	}
	return out
}

// gaps returns the times between two runs of a duty since a moment.
func (r *roster) gaps(since time.Time) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []time.Duration
	for _, all := range r.shifts {
		for n := 1; n < len(all); n++ {
			if all[n].began.After(since) {
				out = append(out, all[n].began.Sub(all[n-1].ended))
			}
		}
	}
	return out
}

func (r *roster) last(name string) shift {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.shifts[name]
	if len(all) == 0 {
		return shift{}
	}
	return *all[len(all)-1]
}

func (r *roster) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.shifts[name])
}

func dutyNames(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("duty-%d", i))
	}
	return out
}

// declare has each member of the lab do the duties.
func (l *lab) declare(r *roster, names ...string) {
	l.setup = func(m *labMember) {
		for _, name := range names {
			require.NoError(l.t, m.Duty(name, r.does(m.pod, name)))
		}
	}
}

// share returns how many duties each pod has, in falling order.
func share(who map[string]string) []int {
	by := map[string]int{}
	for _, pod := range who {
		by[pod]++
	}
	out := slices.Sorted(maps.Values(by))
	slices.Reverse(out)
	return out
}

// R18: duties are spread evenly, and one member at a time does each, whoever joins, leaves and dies.
func TestR18DutiesAreSpread(t *testing.T) {
	inLab(t, func(l *lab) {
		r, names := newRoster(l.t), dutyNames(10)
		l.declare(r, names...)
		want := func(when string, shares ...int) {
			l.t.Helper()
			if got := share(r.now()); !slices.Equal(got, shares) {
				l.t.Errorf("%s: members have %v duties, want %v", when, got, shares)
			}
		}
		l.start("web-0")
		l.wait(time.Minute)
		want("one member", 10)
		begun := time.Now()
		for n := 1; n < 4; n++ {
			l.start(fmt.Sprint("web-", n))
		}
		l.wait(3 * time.Minute)
		want("four members", 3, 3, 2, 2)
		gaps := r.gaps(begun)
		if len(gaps) == 0 || slices.Max(gaps) > time.Second {
			l.t.Errorf("between two owners passed %v, want some, of less than a second", gaps)
		}
		leaver := l.members[1]
		begun = time.Now()
		leaver.stop()
		l.wait(time.Minute)
		want("one left", 4, 3, 3)
		if gaps := r.gaps(begun); len(gaps) == 0 || slices.Max(gaps) > time.Second {
			l.t.Errorf("after one left: %v", gaps)
		}
		victim := l.members[2]
		begun = time.Now()
		victim.crash()
		l.wait(2 * time.Minute)
		want("one died", 5, 5)
		for _, name := range names {
			if s := r.last(name); s.began.After(begun) {
				o := victim.cfg
				least := o.LeaseDuration - o.RetryPeriod // the last renewal may have been a RetryPeriod before
				if after := s.began.Sub(begun); after < least || after > 2*o.LeaseDuration+o.FenceDelay {
					l.t.Errorf("%s began again %v after its member died", name, after)
				}
			}
		}
		for _, m := range []*labMember{l.members[0], l.members[3]} {
			s := m.Status()
			m.want("at last", "rota_duties", "", 5)
			var owned []string
			for _, d := range s.Duties {
				if d.Owner == s.ID {
					owned = append(owned, d.Name)
				}
				if d.Running != (d.Owner == s.ID) || !d.Declared {
					l.t.Errorf("%s: %+v", m.pod, d)
				}
			}
			owned = slices.DeleteFunc(owned, table.OwnDuty) // they are spread by themselves
			if len(s.Duties) != 11 || len(owned) != 5 || s.Open.Len() != 128 || s.Owned.Len() != 128 || len(s.Stuck) > 0 {
				l.t.Errorf("%s: status %+v", m.pod, s)
			}
			m.want("at last", "rota_duty_owned", fmt.Sprintf("duty=%q", owned[0]), 1)
			m.want("at last", "rota_stuck_reconciles", "", 0)
			m.want("at last", "rota_slots", `state="unowned"`, 0)
		}
	})
}

// R18: while nobody has a duty of the rota's own, those members do it that do it in a release without duties.
func TestR18OwnDutiesInARollout(t *testing.T) {
	r, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{Name: "website", Namespace: "operators",
		Identity: Identity{Pod: "web-0"}})
	require.NoError(t, err)
	for name, want := range map[string]slot.Slot{
		labelDuty(schema.GroupKind{Kind: "ConfigMap"}): 246, labelDuty(secretKind): 126,
		labelDuty(schema.GroupKind{Group: "example.com", Kind: "Website"}): 247, report.ScrubDuty: 91,
	} {
		if got, ok := r.ownSlot(name); got != want || !ok {
			t.Errorf("%s: slot %v, want %v", name, got, want)
		}
	}
}

// A function that ignores its context holds its own duty back and nothing else, and that is reported.
func TestR18DutyThatDoesNotReturn(t *testing.T) {
	inLab(t, func(l *lab) {
		r := newRoster(l.t)
		release := make(chan struct{})
		l.setup = func(m *labMember) {
			for _, name := range []string{"good", "stubborn"} {
				err := m.Duty(name, func(ctx context.Context) error {
					defer r.begin(ctx, m.pod, name)()
					<-ctx.Done()
					if name == "stubborn" {
						<-release
					}
					return nil
				})
				require.NoError(l.t, err)
			}
		}
		a := l.start("web-0")
		l.wait(time.Minute)
		b := l.start("web-1")
		l.wait(2 * time.Minute)
		// Whichever of the two moves, the other one and all slots are not held back. Leaving moves both.
		a.leave()
		l.wait(scrapePeriod)
		if who := r.now(); who["good"] != "web-1" || who["stubborn"] != "web-0" {
			l.t.Errorf("while one does not return: %v", who)
		}
		if s := a.Status(); len(s.Stuck) != 1 || s.Stuck[0].Key.Name != "stubborn" || s.Stuck[0].For > time.Minute {
			l.t.Errorf("stuck: %v", s.Stuck)
		}
		held := slices.ContainsFunc(l.memory.Notes(), func(n member.Notify) bool {
			return n.Reason == "SlotHeldBack" && strings.Contains(n.Message, "duty stubborn cannot move on")
		})
		if !held {
			l.t.Errorf("not reported: %v", l.memory.Notes())
		}
		if s := b.Status(); s.Owned.Len() != 256 {
			l.t.Errorf("%d slots have moved, want all", s.Owned.Len())
		}
		close(release)
		require.NoError(l.t, <-a.done)
		a.done <- nil
		a.scraped = false
		l.wait(scrapePeriod)
		if who := r.now(); who["stubborn"] != "web-1" {
			l.t.Errorf("after it returned: %v", who)
		}
	})
}

// A duty that fails starts again, later each time; that it keeps failing is reported. One that returns nil has finished
// until another member gets it.
func TestDutiesThatEnd(t *testing.T) {
	inLab(t, func(l *lab) {
		r := newRoster(l.t)
		works := false
		l.setup = func(m *labMember) {
			for name, run := range map[string]func(context.Context) error{
				"fails": func(ctx context.Context) error {
					if works {
						<-ctx.Done()
						return ctx.Err()
					}
					return errors.New("no backend")
				},
				"finishes": func(context.Context) error { return nil },
			} {
				err := m.Duty(name, func(ctx context.Context) error {
					defer r.begin(ctx, m.pod, name)()
					return run(ctx)
				})
				require.NoError(l.t, err)
			}
		}
		a := l.start("web-0")
		l.wait(10 * time.Minute)
		if n := r.count("finishes"); n != 1 {
			l.t.Errorf("ran %d times after it had finished, want once", n)
		}
		r.mu.Lock()
		var pauses []time.Duration
		for n, s := range r.shifts["fails"][1:] {
			pauses = append(pauses, s.began.Sub(r.shifts["fails"][n].ended))
		}
		r.mu.Unlock()
		for n, got := range pauses {
			if want := min(time.Second<<n, 5*time.Minute); got != want {
				l.t.Errorf("pause %d was %v, want %v", n, got, want)
			}
		}
		failing := a.Failing()
		if len(failing) != 1 || failing[0].Duty != "fails" || !failing[0].Never || failing[0].Reconciles < 5 ||
			!strings.Contains(failing[0].String(), "duty fails: all ") || !strings.Contains(failing[0].String(), "no backend") {
			l.t.Errorf("failing: %v", failing)
		}
		a.want("failing", "rota_duty_failing", `duty="fails"`, 1)
		a.want("failing", "rota_duty_failing", `duty="finishes"`, 0)
		if v, _ := a.value("rota_duty_restarts_total", `duty="fails"`); int(v) != len(pauses) {
			l.t.Errorf("%v restarts, want %d", v, len(pauses))
		}
		if n := l.events()["DutyFails"]; n != 1 {
			l.t.Errorf("reported %d times", n)
		}
		works = true
		l.wait(12 * time.Minute)
		if len(a.Failing()) > 0 || l.events()["DutyWorks"] != 1 {
			l.t.Errorf("failing: %v; events %v", a.Failing(), l.events())
		}
		l.start("web-1")
		l.wait(time.Minute)
		a.stop()
		l.wait(time.Minute)
		if s := r.last("finishes"); s.pod != "web-1" || r.count("finishes") != 2 {
			l.t.Errorf("ran %d times, at last by %s", r.count("finishes"), s.pod)
		}
	})
}

// lapsed says that a context ended because the Lease was not renewed in time.
func lapsed(cause error) bool {
	return errors.Is(cause, gate.ErrExpired) || errors.Is(cause, gate.ErrLost)
}

// R2, R6: a duty writes while it has its slot: after its context ended for a handover until it returns, and after a
// loss not at all.
func TestR18WritesOfDuties(t *testing.T) {
	inLab(t, func(l *lab) {
		type result struct {
			before, after error
			cause         error
		}
		results := make(chan result, 10)
		var after context.Context
		l.setup = func(m *labMember) {
			err := m.Duty("a", func(ctx context.Context) error {
				write := func(ctx context.Context) error {
					return send(ctx, l.t, m.Engine, http.MethodPut, func(req *http.Request) (*http.Response, error) {
						return status(http.StatusOK), req.Context().Err()
					})
				}
				var got result
				got.before = write(ctx)
				<-ctx.Done()
				got.after, got.cause = write(context.WithoutCancel(ctx)), context.Cause(ctx)
				after = context.WithoutCancel(ctx)
				results <- got
				return nil
			})
			require.NoError(l.t, err)
		}
		a := l.start("web-0")
		l.wait(time.Minute)
		b := l.start("web-1")
		l.wait(time.Minute)
		a.stop()
		got := <-results
		if got.before != nil || got.after != nil || !errors.Is(got.cause, gate.ErrHandover) {
			l.t.Errorf("handed over: %+v", got)
		}
		if err := send(after, l.t, a.Engine, http.MethodPut, nil); err == nil {
			l.t.Error("a write after the return was sent")
		}
		l.wait(time.Minute)
		b.cutOff()
		l.wait(time.Minute)
		if got := <-results; got.before != nil || got.after == nil || !lapsed(got.cause) {
			l.t.Errorf("lapsed: %+v", got)
		}
	})
}

// A duty of a name that cannot be is refused, and one that comes too late.
func TestDutiesThatAreRefused(t *testing.T) {
	r := testRota(t)
	run := func(context.Context) error { return nil }
	require.NoError(t, r.Duty("a", run))
	for want, err := range map[string]error{
		"already":          r.Duty("a", run),
		"one printable":    r.Duty("a b", run),
		"a,b":              r.Duty("a,b", run),
		"the rota's own":   r.Duty("rota.dev/scrub", run),
		"function is nil":  r.Duty("b", nil),
		"must be one prin": r.Duty("", run),
	} {
		require.ErrorSays(t, err, want)
	}
	for n := range slot.MaxDuties - 1 {
		require.NoError(t, r.Duty(fmt.Sprint("more-", n), run))
	}
	require.ErrorSays(t, r.Duty("one-more", run), "may have 512")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = r.Run(ctx)
	require.ErrorSays(t, r.Duty("late", run), "Run was called before")
}

// R8: a duty begins when the caches of whole kinds show what its former owner wrote in it, deletions included; after an
// expel, when they show everything.
func TestR8DutiesSeeWhatWasWritten(t *testing.T) {
	for _, handed := range []bool{true, false} {
		t.Run(fmt.Sprint("handed ", handed), func(t *testing.T) { testDutySees(t, handed) })
	}
}

func testDutySees(t *testing.T, handed bool) {
	inLab(t, func(l *lab) {
		t := l.t
		name, doomed := types.NamespacedName{Namespace: "a", Name: "x"}, types.NamespacedName{Namespace: "a", Name: "y"}
		for _, key := range []types.NamespacedName{name, doomed} {
			_, err := l.gadgets.Create(t.Context(), key, nil)
			require.NoError(t, err)
		}
		written := ""
		type whole struct {
			cache.SharedIndexInformer
			requests *deliverytest.Faulty
		}
		caches, saw := map[string]whole{}, make(chan string, 10)
		l.setup = func(m *labMember) {
			faulty := deliverytest.NewFaulty(l.gadgets.ListWatch("", ""), false)
			inf := m.NewInformer(gadgetKind, faulty, &corev1.ConfigMap{}, deliverytest.Never, nil)
			caches[m.pod] = whole{inf, faulty}
			go inf.RunWithContext(t.Context())
			cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced)
			err := m.Duty("a", func(ctx context.Context) error {
				get := func(key types.NamespacedName) string {
					obj, there, err := inf.GetStore().GetByKey(key.String())
					if err != nil || !there {
						return "none"
					}
					return obj.(*corev1.ConfigMap).ResourceVersion
				}
				saw <- fmt.Sprintf("%s: %s, %s", m.pod, get(name), get(doomed))
				<-ctx.Done()
				if m.pod != "web-0" || !handed {
					return nil
				}
				ctx = context.WithoutCancel(ctx)
				obj, err := l.gadgets.Update(ctx, name)
				if err != nil {
					t.Error(err)
				}
				written = obj.Version
				m.Wrote(ctx, gadgetKind, &metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: written})
				if _, err := l.gadgets.Delete(ctx, doomed); err != nil {
					t.Error(err)
				}
				m.share.Write(gadgetKind, doomed, nil, slotsFrom(ctx, m.Engine)...).Deleted(nil)
				return nil
			})
			require.NoError(t, err)
		}
		a := l.start("web-0")
		l.wait(time.Minute)
		l.start("web-1")
		l.wait(time.Minute)
		if got := <-saw; !strings.HasPrefix(got, "web-0: ") || strings.Contains(got, "none") {
			t.Fatalf("at first: %s", got)
		}
		resume := caches["web-1"].requests.Pause()
		lag := 5 * time.Second
		if handed {
			a.leave()
			time.AfterFunc(lag, resume)
		} else {
			a.crash()
			obj, err := l.gadgets.Update(t.Context(), name)
			require.NoError(t, err)
			if written = obj.Version; written == "" {
				t.Fatal("no version")
			}
			_, err = l.gadgets.Delete(t.Context(), doomed)
			require.NoError(t, err)
			time.AfterFunc(2*a.cfg.LeaseDuration, resume)
		}
		if got, want := <-saw, fmt.Sprintf("web-1: %s, none", written); got != want {
			t.Errorf("the next owner saw %s, want %s", got, want)
		}
	})
}

// A panic in a duty ends the process, as in any goroutine.
func TestDutyPanics(t *testing.T) {
	const child = "ROTA_TEST_DUTY_PANICS"
	if os.Getenv(child) != "" {
		inLab(t, func(l *lab) {
			l.setup = func(m *labMember) {
				require.NoError(l.t, m.Duty("a", func(context.Context) error { panic("out of luck") }))
			}
			l.start("web-0")
			l.wait(time.Minute)
		})
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDutyPanics$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: out of luck") {
		t.Errorf("%v, want the process to end with the panic:\n%s", err, out)
	}
}

// What can be run once only, such as a controller whose queue is shut down when the duty ends, is told when the duty
// comes back and nothing is done.
func TestDutiesThatWorkOnce(t *testing.T) {
	inLab(t, func(l *lab) {
		log := &lines{}
		l.setup = func(m *labMember) {
			for name, once := range map[string]bool{"prebuilt": true, "made each time": false} {
				worked := false
				err := m.Duty(strings.ReplaceAll(name, " ", "-"), func(ctx context.Context) error {
					if once && worked {
						return nil // its workers find the queue shut down
					}
					<-ctx.Done()
					worked = true
					return nil
				})
				require.NoError(l.t, err)
			}
		}
		m := l.start("web-0", func(o *Options) { o.Logger = log.logger() })
		l.wait(time.Minute)
		m.cutOff()
		l.wait(time.Minute)
		m.fault.Store(nil)
		l.wait(time.Minute)
		log.wants(l.t, 1, "duty came here again", "create that in the duty's function", `"duty"="prebuilt"`)
		log.wants(l.t, 1, "duty came here again")
	})
}

// A labeller's batch is in the slot of its duty. If it holds that back, it is not said that a function has not returned.
func TestALabellersBatchHoldsItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		defer r.closeStore()
		first := slot.Slot(r.cfg.Slots)
		set := slot.SetOf(slot.Range{First: first, Last: first})
		r.gate.SetDeadline(time.Hour)
		r.duties.Open(t.Context(), set, 7)
		_, leave, _ := r.gate.Enter(t.Context(), first, gate.Key{Queue: labeller.Queue, Name: "Website.example.com"}, false)
		defer leave()
		time.Sleep(2 * replica.HeldBackAfter)
		held := r.duties.HeldBack(set)
		if len(held) != 1 || !strings.Contains(held[0], labeller.Queue) || strings.Contains(held[0], "duty Website") {
			t.Errorf("%q, want that the labeller holds the slot back", held)
		}
	})
}
