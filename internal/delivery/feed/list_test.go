package feed

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// Lists of a member that works take turns; one that is needed at once does not wait, and none waits for long.
func TestTurns(t *testing.T) {
	calm := func() bool { return false }
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		begun := time.Now()
		first := turns.await(t.Context(), calm)
		if took := time.Since(begun); took != 0 {
			t.Errorf("the first waited for %v", took)
		}
		go func() {
			time.Sleep(300 * time.Millisecond)
			first()
		}()
		second := turns.await(t.Context(), calm)
		if took := time.Since(begun); took != 300*time.Millisecond {
			t.Errorf("the second had its turn after %v, want when the first was done", took)
		}
		// The second is never done.
		soon := begun.Add(400 * time.Millisecond)
		turns.await(t.Context(), func() bool { return time.Now().After(soon) })()
		if took := time.Since(begun); took < 400*time.Millisecond || took > 400*time.Millisecond+turnLook {
			t.Errorf("one that was needed at once after 400 ms went on after %v", took)
		}
		begun = time.Now()
		turns.await(t.Context(), calm)()
		if took := time.Since(begun); took != turnPatience {
			t.Errorf("the third waited for %v, want %v", took, turnPatience)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		turns.await(ctx, calm)()
		if took := time.Since(begun); took != time.Second {
			t.Errorf("one whose context ended after a second waited for %v", took)
		}
		second()
		begun = time.Now()
		turns.await(t.Context(), calm)()
		if took := time.Since(begun); took != 0 {
			t.Errorf("with nobody before it: %v", took)
		}
	})
}

// A list of everything waits while other members are to list first, but not for ever, and not where nobody works on the
// slots.
func TestMembersListOneAfterTheOther(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		ahead                       int
		aheadFor, urgentAfter, want time.Duration
	}{
		"no other member":           {ahead: 0, aheadFor: never, urgentAfter: never, want: 0},
		"a member that lists first": {ahead: 1, aheadFor: 300 * time.Millisecond, urgentAfter: never, want: 300 * time.Millisecond},
		"one that cannot list":      {ahead: 1, aheadFor: never, urgentAfter: never, want: membersPatience},
		"nine":                      {ahead: 9, aheadFor: never, urgentAfter: never, want: 4 * membersPatience},
		"a hundred":                 {ahead: 100, aheadFor: never, urgentAfter: never, want: 7 * membersPatience},
		"nobody works on the slots": {ahead: 1, aheadFor: never, urgentAfter: 0, want: 0},
		"their owner dies":          {ahead: 9, aheadFor: never, urgentAfter: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begun time.Time
				turns := memberTurns{ahead: func() int {
					if time.Since(begun) < c.aheadFor {
						return c.ahead
					}
					return 0
				}}
				for range 2 { // the second wait begins anew
					begun = time.Now()
					turns.reset()
					for !turns.come(time.Since(begun) >= c.urgentAfter) {
						time.Sleep(turnLook)
					}
					if took := time.Since(begun); took != c.want {
						t.Errorf("waited for %s, want %s", took, c.want)
					}
				}
			})
		})
	}
}

// Only lists that go through all objects wait for other members' lists.
func TestWhichListsWait(t *testing.T) {
	for mode, waits := range map[sharding.Mode]bool{sharding.Filter: true, sharding.SlotLabel: false} {
		t.Run(mode.String(), func(t *testing.T) {
			first, second := slot.SetOf(slot.Range{First: 0, Last: 3}), slot.SetOf(slot.Range{First: 4, Last: 7})
			var ahead atomic.Int64
			ahead.Store(1 << 40)
			s := New(Options{
				Roles:    sharding.New(sharding.Options{Slots: 16, Mode: mode}),
				Complete: func(*Informer, slot.Set) {}, Missed: func(*Informer, slot.Set) {},
				Patience: 200 * time.Millisecond, Excuse: time.Hour, Ahead: func() int { return int(ahead.Load()) },
			})
			require.NoError(t, s.Shard(configMapKind))
			lists := make(chan struct{}, 100)
			inf := NewInformer(s, configMapKind, listsOnly{&cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					lists <- struct{}{}
					return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					return watch.NewFake(), nil
				},
			}}, &corev1.ConfigMap{}, 0, nil)
			s.hold(first)
			s.Unmute(first)
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { inf.RunWithContext(ctx) })
			defer running.Wait()
			defer end()
			require.Receive(t, lists, time.Minute, "no first list")
			_, _, err := inf.Source.AwaitSlots(t.Context(), first, false, time.Now())
			require.NoError(t, err)
			for len(lists) > 0 {
				<-lists
			}
			s.hold(second)
			inf.Source.Wake()
			if waits {
				select {
				case <-lists:
					t.Error("a list does not wait for the members ahead")
				case <-time.After(4 * turnLook):
				}
				ahead.Store(0)
			}
			require.Receive(t, lists, time.Minute, "no list of the slots that came")
		})
	}
}

// A member without open slots, and one that gets slots of nobody, lists at once.
func TestUrgent(t *testing.T) {
	s := newCommon(sharding.Options{Slots: 16})
	some, others := slot.SetOf(slot.Range{First: 0, Last: 3}), slot.SetOf(slot.Range{First: 4, Last: 7})
	s.hold(some)
	if !s.urgent(some) {
		t.Error("a member that works on nothing has its lists wait")
	}
	s.Unmute(some)
	s.hold(others)
	if s.urgent(others) {
		t.Error("slots that others still work on are listed at once")
	}
	anew := slot.SetOf(slot.Range{First: 7, Last: 8})
	s.Want(anew, anew.Minus(s.Held()))
	if s.urgent(others) { // 7 was held before
		t.Error("slots that were held before are listed at once")
	}
	if !s.urgent(slot.SetOf(slot.Range{First: 8, Last: 9})) {
		t.Error("slots of nobody have to wait")
	}
}

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		versions []string
		wrong    string
	}{
		{[]string{"", "7", "16354", "12345678901234567890123", ""}, ""},
		{[]string{"16354/", "1655/", "99/"}, ""},
		{[]string{"16354/1", "16354/2"}, `"16354/1" and "16354/2"`},
		{[]string{"16354", "16354/"}, `"16354" and "16354/"`},
		{[]string{"", "c2f1"}, `"c2f1"`},
		{[]string{"1c2f", "2a6b"}, `"1c2f" and "2a6b"`},
	} {
		var o order
		var err error
		for _, v := range c.versions {
			err = errors.Join(err, o.check(configMapKind, v))
		}
		if (err == nil) != (c.wrong == "") || err != nil &&
			(!strings.Contains(err.Error(), c.wrong) || !strings.Contains(err.Error(), "ConfigMap")) {
			t.Errorf("%q: %v, want %q", c.versions, err, c.wrong)
		}
	}
}
