package feed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/dispatch/feed"
)

// faulty is an API server with one object, that answers as the functions say.
func faulty(list func() error, open func(version string) (watch.Interface, error),
	version *atomic.Pointer[string],
) cache.ListerWatcherWithContext {
	return cache.ToListerWatcherWithContext(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if err := list(); err != nil {
				return nil, err
			}
			return &metav1.PartialObjectMetadataList{
				ListMeta: metav1.ListMeta{ResourceVersion: *version.Load()},
				Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "5"}}},
			}, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return open(o.ResourceVersion)
		},
	})
}

// inTime runs a feed of a faulty source for a time.
func inTime(t *testing.T, src cache.ListerWatcherWithContext, missed *atomic.Int32, d time.Duration,
	then func(*feed.Feed),
) {
	t.Helper()
	f := feed.New(feed.Options{Name: "x", Source: src, Event: func(metav1.Object, bool) {},
		Missed: func() { missed.Add(1) }})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	time.Sleep(d)
	then(f)
	stop()
	<-done
}

func none() error { return nil }

// A watch that is refused is not asked for again and again, and nothing is listed for it.
func TestWatchRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version atomic.Pointer[string]
		version.Store(ptr.To("7"))
		var opened, missed atomic.Int32
		src := faulty(none, func(string) (watch.Interface, error) {
			opened.Add(1)
			return nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil)
		}, &version)
		inTime(t, src, &missed, 10*time.Minute, func(f *feed.Feed) {
			if n := opened.Load(); n < 10 || n > 50 || missed.Load() != 0 || !apierrors.IsForbidden(f.Err()) {
				t.Errorf("%d watches in ten minutes, missed %d times, error %v", n, missed.Load(), f.Err())
			}
		})
	})
}

// After etcd was restored, the feed's position is in the future. It takes another one.
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version atomic.Pointer[string]
		version.Store(ptr.To("1000000"))
		var missed atomic.Int32
		src := faulty(none, func(at string) (watch.Interface, error) {
			if at != *version.Load() {
				err := apierrors.NewTimeoutError("Too large resource version: 1000000, current: 10", 1)
				err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
				return nil, err
			}
			w := watch.NewFake()
			if at == "1000000" {
				time.AfterFunc(time.Second, func() { version.Store(ptr.To("10")); w.Stop() })
			}
			return w, nil
		}, &version)
		inTime(t, src, &missed, time.Minute, func(f *feed.Feed) {
			if missed.Load() != 1 || f.Err() != nil {
				t.Errorf("missed %d times, want once; error %v", missed.Load(), f.Err())
			}
		})
	})
}

// A single answer that a kind is not served, from one of two API servers, is no proof.
func TestNotFoundOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version atomic.Pointer[string]
		version.Store(ptr.To("7"))
		var lists, missed atomic.Int32
		src := faulty(func() error {
			if lists.Add(1) == 2 {
				return apierrors.NewNotFound(corev1.Resource("configmaps"), "")
			}
			return nil
		}, func(string) (watch.Interface, error) { return watch.NewFake(), nil }, &version)
		inTime(t, src, &missed, time.Second, func(f *feed.Feed) {
			got := 0
			count := func(metav1.Object) error { got++; return nil }
			if _, err := f.List(t.Context(), count); !apierrors.IsNotFound(err) {
				t.Errorf("error %v", err)
			}
			if _, err := f.List(t.Context(), count); err != nil || got != 1 {
				t.Errorf("%d objects, %v", got, err)
			}
		})
	})
}

// quiet is an API server that has forgotten what happened since version 7. Its kind is at version 9, and its long watch
// is running.
func quiet(short *atomic.Int32, running func(*watch.FakeWatcher)) cache.ListerWatcherWithContext {
	var lists atomic.Int32
	return cache.ToListerWatcherWithContext(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			version := "9"
			if lists.Add(1) == 1 {
				version = "7"
			}
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.TimeoutSeconds != nil {
				short.Add(1)
				return nil, apierrors.NewResourceExpired("too old")
			}
			w := watch.NewFake()
			go running(w)
			return w, nil
		},
	})
}

func about(version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
}

// On a quiet kind only bookmarks tell how far the watch is. Those before CatchUp make it need no watch of its own, and
// if that comes too late, it waits for the next one.
func TestCatchUpWithAQuietKind(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    time.Duration // of the bookmark
		event bool          // instead of the bookmark
		short int32
		fails bool
	}{
		{"bookmark before", time.Second, false, 0, false},
		{"bookmark after", 5 * time.Second, false, 1, false},
		{"event after", 5 * time.Second, true, 1, false},
		{"neither", 0, false, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var short, missed atomic.Int32
				src := quiet(&short, func(w *watch.FakeWatcher) {
					if c.fails {
						return
					}
					time.Sleep(c.at)
					if c.event {
						w.Delete(about("9"))
						return
					}
					w.Action(watch.Bookmark, about("9"))
				})
				inTime(t, src, &missed, 2*time.Second, func(f *feed.Feed) {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					defer cancel()
					if err := f.CatchUp(ctx); (err != nil) != c.fails {
						t.Errorf("error %v", err)
					}
					if short.Load() != c.short || missed.Load() != 0 {
						t.Errorf("%d watches of its own, want %d; missed %d times", short.Load(), c.short, missed.Load())
					}
				})
			})
		})
	}
}
