package keeper

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

var all = slot.Count(16).All()

// opened runs a dispatcher whose object a worker has worked on.
func opened(t *testing.T, s *server, remember bool, test func(*testing.T, *Dispatcher)) {
	t.Helper()
	inTimeWith(t, Options{RememberNames: remember}, map[string]*server{"Pod": s}, func(t *testing.T, d *Dispatcher) {
		require.NoError(t, d.Load(t.Context(), all, true, nil))
		d.Open(all, 1)
		finish(t, d, false)
		test(t, d)
	})
}

// finish takes the one key that there has to be.
func finish(t *testing.T, d *Dispatcher, gone bool) {
	t.Helper()
	got := take(t, d, time.Minute)
	if len(got) != 1 || got[0].Gone != gone {
		t.Errorf("takes %+v, want one, gone: %t", got, gone)
		return
	}
	require.NoError(t, d.Done(got[0].ID, "w", queue.Result{}))
}

func none(t *testing.T, d *Dispatcher, when string) {
	t.Helper()
	if got := take(t, d, time.Minute); len(got) != 0 {
		t.Errorf("%s: takes %+v", when, got)
	}
}

func TestListWithoutAName(t *testing.T) {
	for _, remember := range []bool{true, false} {
		s := &server{list: fine}
		opened(t, s, remember, func(t *testing.T, d *Dispatcher) {
			s.set(true, fine, nil)
			d.listAgain("Pod")
			if remember {
				finish(t, d, true)
			}
			none(t, d, fmt.Sprintf("remember %t", remember))
			d.listAgain("Pod")
			none(t, d, "it was handed out")
		})
	}
}

// A list that fails, or finds that the kind is not served, tells of no deletion.
func TestListThatProvesNothing(t *testing.T) {
	s := &server{list: fine}
	opened(t, s, true, func(t *testing.T, d *Dispatcher) {
		s.set(true, func(context.Context) error { return errors.New("injected") }, nil)
		d.listAgain("Pod")
		none(t, d, "the list fails")
		s.set(true, fine, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, ""))
		(<-s.watches).Error(&apierrors.NewResourceExpired("injected").ErrStatus)
		none(t, d, "the kind is not served")
		if len(d.relists) > 0 {
			t.Error("a list of a kind that is not served goes on")
		}
		s.set(true, fine, nil)
		finish(t, d, true)
	})
}

// The object is created again while a list without it is under way.
func TestCreatedDuringAList(t *testing.T) {
	s := &server{list: fine}
	opened(t, s, true, func(t *testing.T, d *Dispatcher) {
		s.set(true, func(context.Context) error {
			(<-s.watches).Add(object("9"))
			time.Sleep(time.Second)
			return nil
		}, nil)
		d.listAgain("Pod")
		finish(t, d, false)
		none(t, d, "it exists")
	})
}

// Two lists of a slot are under way. Only the one that began last knows what is gone.
func TestTwoLists(t *testing.T) {
	m := newRemembered()
	m.hold(all)
	a, b := objectName{"x", "a"}, objectName{"y", "b"}
	m.exists(3, a, "1")
	m.exists(3, b, "1")
	first := m.begin(all)
	m.listed(first, 3, a)
	second := m.begin(all)
	m.listed(first, 3, b)
	if gone := m.end(first, all); len(gone) != 0 {
		t.Errorf("the first list: %v are gone", gone)
	}
	m.listed(second, 3, a)
	if gone := m.end(second, all); len(gone) != 1 || len(gone[3]) != 1 || gone[3][0] != b {
		t.Errorf("the second list: %v are gone, want %v", gone, b)
	}
	if count, _ := m.size(); count != 1 {
		t.Errorf("%d names are left, want 1", count)
	}
	m.shut(all)
	if count, bytes := m.size(); count != 0 || bytes != 0 || len(m.spaces.numbers) != 0 {
		t.Errorf("%d names in %d bytes and namespaces %v are left", count, bytes, m.spaces.numbers)
	}
	m.hold(all)
	m.exists(3, objectName{"z", "c"}, "1") // its namespace has the number of another one
	m.end(m.begin(all), all)
	if len(m.spaces.names) != 2 {
		t.Errorf("namespaces %v", m.spaces.names)
	}
}

// Deletions in slots of others are handed out when these come without a word of their former owner.
func TestDeletionInASlotOfOthers(t *testing.T) {
	for _, c := range []struct {
		name             string
		remember, handed bool
		between          func(*server)
		want             int
	}{
		{"its owner dies", true, false, func(*server) {}, 1},
		{"its owner hands it over", true, true, func(*server) {}, 0},
		{"not remembered", false, false, func(*server) {}, 0},
		{"long ago", true, false, func(*server) { time.Sleep(2 * recall) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{list: fine, empty: true}
			inTimeWith(t, Options{RememberNames: c.remember}, map[string]*server{"Pod": s}, func(t *testing.T, d *Dispatcher) {
				(<-s.watches).Delete(object("8"))
				synctest.Wait()
				c.between(s)
				require.NoError(t, d.Load(t.Context(), all, c.handed, nil))
				d.Open(all, 1)
				got := take(t, d, time.Second)
				if len(got) != c.want || c.want > 0 && (!got[0].Gone || got[0].Version != "8") {
					t.Errorf("takes %+v, want %d of a deleted object", got, c.want)
				}
			})
		})
	}
}

// A namespace whose objects are deleted without having been seen before leaves nothing behind.
func TestDeletionOfANameThatWasNotThere(t *testing.T) {
	m := newRemembered()
	m.hold(all)
	m.deleted(1, objectName{"x", "a"}, deletion{})
	if len(m.spaces.numbers) != 0 {
		t.Errorf("namespaces %v are left", m.spaces.numbers)
	}
}

// Figures for docs/dispatch.md: the time that an event costs with 1,000,000 names in 256 slots, and their memory.
func BenchmarkRemember(b *testing.B) {
	m := newRemembered()
	slots := slot.Count(256)
	m.hold(slots.All())
	text := 0
	for i := range 1_000_000 {
		o := objectName{"namespace-" + fmt.Sprint(i%1000), fmt.Sprintf("website-%08d", i)}
		text += len(o.name)
		m.exists(slot.Slot(i%256), o, "1")
	}
	o := objectName{"namespace-7", "another"}
	for b.Loop() {
		m.exists(77, o, "1")
		m.deleted(77, o, deletion{})
	}
	_, bytes := m.size()
	b.ReportMetric(float64(bytes-text)/1_000_000, "B/object")
}
