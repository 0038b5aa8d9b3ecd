package keeper

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// server has one object of a kind, and answers lists as the function says.
type server struct {
	mu      sync.Mutex
	list    func(ctx context.Context) error
	empty   bool  // its object was deleted
	absent  error // of all requests, if the kind is not served
	watches chan *watch.RaceFreeFakeWatcher
	lists   atomic.Int32
	// children, if set, has the objects that its objects own.
	children *server
}

// set changes how it answers.
func (s *server) set(empty bool, list func(context.Context) error, absent error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty, s.list, s.absent = empty, list, absent
}

func (s *server) get() (empty bool, list func(context.Context) error, absent error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.empty, s.list, s.absent
}

// version is 5 at first.
func (s *server) version() string {
	if s.lists.Add(1) == 1 {
		return "5"
	}
	return "7"
}

func object(version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "1", ResourceVersion: version},
	}
}

func (s *server) source() cache.ListerWatcherWithContext {
	return cache.ToListerWatcherWithContext(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			empty, listing, absent := s.get()
			if absent != nil {
				return nil, absent
			}
			if o.Limit != 1 {
				if err := listing(ctx); err != nil {
					return nil, err
				}
			}
			list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: s.version()}}
			if !empty {
				list.Items = []metav1.PartialObjectMetadata{*object("5")}
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if _, _, absent := s.get(); absent != nil {
				return nil, absent
			}
			w := watch.NewRaceFreeFake()
			if o.TimeoutSeconds != nil && *o.TimeoutSeconds < 10 {
				w.Delete(object("6"))
				bookmark := object("7")
				bookmark.Name = ""
				w.Action(watch.Bookmark, bookmark)
				return w, nil
			}
			select {
			case s.watches <- w:
			default:
			}
			return w, nil
		},
	})
}

// inTime runs a dispatcher of these kinds in a bubble.
func inTime(t *testing.T, servers map[string]*server, test func(*testing.T, *Dispatcher)) {
	t.Helper()
	inTimeWith(t, Options{}, servers, test)
}

func inTimeWith(t *testing.T, o Options, servers map[string]*server, test func(*testing.T, *Dispatcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for name := range servers {
			o.Kinds = append(o.Kinds, Kind{Kind: schema.GroupKind{Kind: name}})
		}
		begun := time.Now()
		d, err := NewOf(adapter.Parts{
			Slots: 16, Key: slot.KeyName, Late: func() time.Duration { return time.Since(begun) },
		}, o)
		require.NoError(t, err)
		for name, s := range servers {
			s.watches = make(chan *watch.RaceFreeFakeWatcher, 1)
			d.follow(name, s.source())
			if c := s.children; c != nil {
				c.watches = make(chan *watch.RaceFreeFakeWatcher, 1)
				d.followChildren(schema.GroupKind{Kind: name}, c.source(), scopes())
			}
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()
		d.SetDeadline(time.Hour)
		test(t, d)
		stop()
		<-done
	})
}

func take(t *testing.T, d *Dispatcher, wait time.Duration) []queue.Take {
	t.Helper()
	takes, err := d.Take(t.Context(), Ask{Worker: "w", Max: 10, Wait: wait})
	require.NoError(t, err)
	return takes
}

func fine(context.Context) error { return nil }

// An object is deleted after a page with it was read, and before the page is told of.
func TestDeletionInList(t *testing.T) {
	s := &server{}
	s.list = func(context.Context) error {
		(<-s.watches).Delete(object("8"))
		time.Sleep(time.Second) // the answer is on its way
		return nil
	}
	inTime(t, map[string]*server{"Pod": s}, func(t *testing.T, d *Dispatcher) {
		all := slot.Count(16).All()
		require.NoError(t, d.Load(t.Context(), all, true, nil))
		d.Open(all, 1)
		if got := take(t, d, time.Second); len(got) != 1 || !got[0].Gone || got[0].Version != "8" {
			t.Errorf("takes %+v, want one of a deleted object", got)
		}
	})
}

// An object is deleted while its slot is about to move, and the watch lags: the deletion is known before the slot drains.
func TestDeletionInAHandover(t *testing.T) {
	inTime(t, map[string]*server{"Pod": {list: fine}}, func(t *testing.T, d *Dispatcher) {
		all := slot.Count(16).All()
		require.NoError(t, d.Load(t.Context(), all, true, nil))
		d.Open(all, 1)
		for _, one := range take(t, d, time.Second) {
			require.NoError(t, d.Done(one.ID, "w", queue.Result{}))
		}
		require.NoError(t, d.CatchUp(t.Context(), all))
		var left []table.Gone
		d.Drain(all, func(_ slot.Slot, gone []table.Gone) { left = append(left, gone...) })
		if len(left) != 1 || left[0].Name != "b" {
			t.Errorf("deletions %v are left to the next owner, want one", left)
		}
		if err := d.CatchUp(t.Context(), all); err != nil { // it has caught up, and asks nothing
			t.Error(err)
		}
	})
}

// An object is deleted when its former owner has caught up, and before this dispatcher lists what it got.
func TestDeletionAfterTheDrain(t *testing.T) {
	s := &server{list: fine, empty: true}
	inTime(t, map[string]*server{"Pod": s}, func(t *testing.T, d *Dispatcher) {
		all := slot.Count(16).All()
		require.NoError(t, d.Warm(t.Context(), all))
		(<-s.watches).Delete(object("8"))
		synctest.Wait()
		if got := take(t, d, time.Second); len(got) != 0 {
			t.Errorf("takes %+v of slots that are not open", got)
		}
		require.NoError(t, d.Load(t.Context(), all, true, nil))
		d.Open(all, 1)
		if got := take(t, d, time.Second); len(got) != 1 || !got[0].Gone {
			t.Errorf("takes %+v, want one of a deleted object", got)
		}
	})
}

// A kind that cannot be listed does not hold up the others, and its keys come once it can.
func TestKindThatCannotBeListed(t *testing.T) {
	var works atomic.Bool
	bad := &server{list: func(context.Context) error {
		if works.Load() {
			return nil
		}
		return errors.New("its conversion webhook is down")
	}}
	inTime(t, map[string]*server{"Pod": {list: fine}, "Site": bad}, func(t *testing.T, d *Dispatcher) {
		all, begun := slot.Count(16).All(), time.Now()
		if err := d.Load(t.Context(), all, true, nil); err != nil || time.Since(begun) > 2*excuse {
			t.Fatalf("%v after %v", err, time.Since(begun))
		}
		d.Open(all, 1)
		if got := take(t, d, time.Second); len(got) != 1 || got[0].Key.Kind != "Pod" {
			t.Errorf("takes %+v, want the Pod", got)
		}
		works.Store(true)
		if got := take(t, d, 2*time.Minute); len(got) != 1 || got[0].Key.Kind != "Site" {
			t.Errorf("takes %+v, want the Site", got)
		}
	})
}

// However often events are missed, one list of a kind is under way at a time, and one follows.
func TestMissedOften(t *testing.T) {
	var now, most, lists atomic.Int32
	s := &server{list: func(context.Context) error {
		lists.Add(1)
		most.Store(max(most.Load(), now.Add(1)))
		time.Sleep(10 * time.Second)
		now.Add(-1)
		return nil
	}}
	inTime(t, map[string]*server{"Pod": s}, func(t *testing.T, d *Dispatcher) {
		time.Sleep(time.Second)
		for range 5 {
			d.listAgain("Pod")
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		if most.Load() != 1 || lists.Load() != 2 {
			t.Errorf("%d lists, %d at a time, want 2 one after the other", lists.Load(), most.Load())
		}
	})
}
