package habits

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/controlplane"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // leader election logs there
	controlplane.Parallel(9)       // lives are mostly waits
	controlplane.Main(m, controlplane.Options{})
}

// items are how many a user has at a time; a third of them goes and comes in each gap.
const items = 18

// world is what the user did so far.
type world struct {
	t        *testing.T
	habit    Habit
	user     User
	versions map[int]int
	next     int
}

func (w *world) create(n int) {
	w.t.Helper()
	for range n {
		if err := w.habit.Create(w.user, w.next); err != nil {
			w.t.Fatal(err)
		}
		w.versions[w.next] = 1
		w.next++
	}
}

// gap is what happens between two steps, and while they go on: a third of the items is deleted, as many are made, and
// half of the others change.
func (w *world) gap() {
	w.t.Helper()
	names := slices.Sorted(maps.Keys(w.versions))
	for k, i := range names {
		var err error
		switch {
		case k%3 == 0:
			err = w.habit.Remove(w.user, i)
			delete(w.versions, i)
		case k%2 == 0:
			w.versions[i]++
			err = w.habit.Change(w.user, i, w.versions[i])
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	w.create(items / 3)
}

// settle waits until the objects are what they should be.
func (w *world) settle(f *fleet, when string) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		f.alive()
		wrong, err := w.habit.Wrong(w.user, w.versions)
		if err != nil {
			w.t.Fatal(err)
		}
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %s", when, wrong)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// live runs an operator through its life.
func live(t *testing.T, h Habit, sharded bool) {
	if testing.Short() {
		t.Skip("a life takes half a minute on a real API server")
	}
	t.Parallel()
	c, err := client.New(controlplane.For(t).Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := controlplane.Namespace(t)
	h = h.withDefaults()
	f := &fleet{t: t, namespace: namespace, sharded: sharded, build: h.Build}
	w := &world{t: t, habit: h, user: User{t.Context(), c, namespace}, versions: map[int]int{}}
	w.create(items)
	f.start()
	f.start()
	w.settle(f, "after the start")

	f.start()
	w.gap()
	w.settle(f, "after a join")

	f.leave()
	w.gap()
	w.settle(f, "after a leave")

	f.start()
	w.settle(f, "after another join")
	f.kill()
	w.gap() // while nobody owns its slots
	w.settle(f, "after a kill")

	for range len(f.replicas) {
		f.start()
		w.gap()
		f.leave()
		w.gap()
	}
	w.settle(f, "after a rolling restart")

	for range len(f.replicas) { // nobody is there for a while
		f.leave()
	}
	w.gap()
	f.start()
	w.settle(f, "after a full restart")
}

// TestBesideStock has each operator live, stock and sharded.
func TestBesideStock(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		for _, h := range All() {
			t.Run(fmt.Sprintf("%s/sharded=%t", h.Name, sharded), func(t *testing.T) { live(t, h, sharded) })
		}
		t.Run(fmt.Sprintf("hubs/sharded=%t", sharded), func(t *testing.T) { live(t, hubs(t), sharded) })
	}
}
