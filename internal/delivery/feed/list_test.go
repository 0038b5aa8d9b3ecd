package feed

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Lists of a member that works take turns; one that is needed at once does not wait, and none waits for long.
func TestTurns(t *testing.T) {
	calm := func() bool { return false }
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(nil)
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

// A list of everything waits while another member is to list first, but not for ever, and not where nobody works on the
// slots.
func TestMembersListOneAfterTheOther(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		aheadFor, urgentAfter, want time.Duration
	}{
		"no other member":            {aheadFor: 0, urgentAfter: never, want: 0},
		"a member that lists first":  {aheadFor: 300 * time.Millisecond, urgentAfter: never, want: 300 * time.Millisecond},
		"a member that cannot list":  {aheadFor: never, urgentAfter: never, want: membersPatience},
		"nobody works on the slots":  {aheadFor: never, urgentAfter: 0, want: 0},
		"their owner dies meanwhile": {aheadFor: never, urgentAfter: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				turns := newTurns(func() bool { return time.Since(begun) < c.aheadFor })
				turns.awaitMembers(t.Context(), func() bool { return time.Since(begun) >= c.urgentAfter })
				if took := time.Since(begun); took != c.want {
					t.Errorf("waited for %s, want %s", took, c.want)
				}
			})
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
