package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/require"
)

// byObject returns events in the order in which they came, of one object after the other. The last state of a deleted
// object is not compared where the API server selects by label: it says DELETED of what has lost the label, too, so a
// member reads what became of the object.
func (w *informerWorld) byObject(events []informerEvent) (told []string, repeated map[types.NamespacedName]bool) {
	repeated = map[types.NamespacedName]bool{}
	slices.SortStableFunc(events, func(a, b informerEvent) int { return strings.Compare(a.name().String(), b.name().String()) })
	for _, e := range events {
		if e.repeats() {
			repeated[e.name()] = true
			continue
		}
		if e.what == "delete" && w.Mode == sharding.SlotLabel {
			e.obj, e.unknown = e.obj.DeepCopy(), false
			e.obj.ResourceVersion = string(e.obj.UID)
		}
		told = append(told, e.String())
	}
	return told, repeated
}

// folded leaves out namesakes that came and went after an object had been deleted, in the same step: each addition that
// follows a deletion, up to its own deletion. With labels a member looks up what became of a deleted object, and the
// answer may be newer than what the watch has shown.
func folded(told []string) []string {
	var out []string
	skips := func(rest []string) int { // events of a namesake that has gone
		if len(out) == 0 || len(rest) == 0 || !strings.HasPrefix(out[len(out)-1], "delete ") ||
			!strings.HasPrefix(rest[0], "add ") || objectOf(rest[0]) != objectOf(out[len(out)-1]) {
			return 0
		}
		for n, e := range rest {
			switch {
			case objectOf(e) != objectOf(rest[0]):
				return 0
			case strings.HasPrefix(e, "delete "):
				return n + 1
			}
		}
		return 0
	}
	for len(told) > 0 {
		if n := skips(told); n > 0 {
			told = told[n:]
			continue
		}
		out, told = append(out, told[0]), told[1:]
	}
	return out
}

// objectOf returns the object of an event, as informerEvent.String has it.
func objectOf(told string) string {
	_, about, _ := strings.Cut(told, " ")
	name, _, _ := strings.Cut(about, "@")
	return name
}

// check compares what handlers heard in a step, and what the stores hold.
func (w *informerWorld) check(s informerStep) error {
	synctest.Wait()
	for n := range informerHandlers {
		if w.stock.handlers[n] == nil {
			continue
		}
		var want []informerEvent
		for _, e := range w.stock.handlers[n].take() {
			want = append(want, w.expected(e, s.Do == "outage")...)
		}
		wantTold, wantRepeated := w.byObject(want)
		gotTold, gotRepeated := w.byObject(w.member.handlers[n].take())
		diff := cmp.Diff(wantTold, gotTold)
		if diff != "" && w.Mode == sharding.SlotLabel {
			diff = cmp.Diff(folded(wantTold), folded(gotTold))
		}
		if diff != "" {
			return fmt.Errorf("handler %d heard (-stock +member):\n%s", n, diff)
		}
		// A resync comes once a period. A stock informer counts it from its last list, a member's from its start, since its
		// reflector need not list again. So only several periods are sure to have one in both.
		if diff := cmp.Diff(wantRepeated, gotRepeated); diff != "" && s.Do == "pass" && s.For > 0 {
			return fmt.Errorf("handler %d heard again (-stock +member):\n%s", n, diff)
		}
		if w.stock.added[n].HasSynced() != w.member.added[n].HasSynced() {
			return fmt.Errorf("handler %d has synced: stock %t, member %t", n, w.stock.added[n].HasSynced(),
				w.member.added[n].HasSynced())
		}
	}
	if w.stock.HasSynced() != w.member.HasSynced() || w.stock.IsStopped() != w.member.IsStopped() {
		return errors.New("synced or stopped differ")
	}
	if w.stopped {
		return nil
	}
	return w.checkStores()
}

func (w *informerWorld) checkStores() error {
	contents := func(objs []any, all bool) []string {
		var out []string
		for _, obj := range objs {
			if cm := obj.(*corev1.ConfigMap); all || w.in(w.held, cm) {
				out = append(out, shown(cm))
			}
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(contents(w.stock.GetStore().List(), false), contents(w.member.GetStore().List(), true)); diff != "" {
		return fmt.Errorf("stores (-stock +member):\n%s", diff)
	}
	for _, index := range []string{cache.NamespaceIndex, "by-version"} {
		for _, value := range w.stock.GetIndexer().ListIndexFuncValues(index) {
			want, wantErr := w.stock.GetIndexer().ByIndex(index, value)
			got, gotErr := w.member.GetIndexer().ByIndex(index, value)
			if err := errors.Join(wantErr, gotErr); err != nil {
				return err
			}
			if diff := cmp.Diff(contents(want, false), contents(got, true)); diff != "" {
				return fmt.Errorf("index %s of %q (-stock +member):\n%s", index, value, diff)
			}
		}
	}
	return nil
}

// informersDiffer makes steps, and returns the first difference.
func informersDiffer(t *testing.T, setting informerSetting, steps []informerStep) (out error) {
	synctest.Test(t, func(*testing.T) {
		w, err := newInformerWorld(setting)
		if err != nil {
			out = err
			return
		}
		defer func() {
			for _, side := range []*informerSide{w.stock, w.member} {
				if side.stop != nil {
					side.stop()
				}
				side.runs.Wait()
			}
		}()
		watcher := &hearer{}
		w.stock.AddEventHandlerWithResyncPeriod(watcher, 0)
		for n, s := range steps {
			err := w.step(s)
			time.Sleep(settles)
			synctest.Wait()
			for _, e := range watcher.take() {
				w.miss(e)
			}
			if err = errors.Join(err, w.check(s)); err != nil {
				out = fmt.Errorf("step %d: %v: %w", n+1, s, err)
				return
			}
		}
	})
	return out
}

// A member's informer is a stock one, as far as its slots are concerned. Handlers hear the same of objects in open
// slots, with the same states before and after, whatever comes and goes: slots, handlers, the connection. The stores
// and indexes have the same objects. Open tells what handlers did not hear.
//
// The differences are those of the function expected: handlers hear nothing of slots that are not open, and an object
// that gets another owner changes its place.
func TestAnInformerIsAStockInformer(t *testing.T) {
	const rounds = 20 // most sequences are short, and few of them meet
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) {
			setting := informerSettings.Draw(rt, "setting")
			steps := rapid.SliceOfN(informerSteps, 1, 40).Draw(rt, "steps")
			require.NoError(rt, informersDiffer(t, setting, steps))
		})
	}
}
