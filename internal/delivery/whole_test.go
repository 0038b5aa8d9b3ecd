package delivery

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// R8: a whole kind's cache that does not show what a former owner wrote holds slots up as long as its watch lags, and
// only briefly where it does not select the object. What lags for too long is told, once.
func TestR8WholeKindsThatAreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		s := New(Options{Slots: 8, Logger: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})})
		var now atomic.Pointer[corev1.ConfigMapList] // what is listed
		put := func(version string, objects ...*corev1.ConfigMap) {
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
			for _, obj := range objects {
				list.Items = append(list.Items, *obj)
			}
			now.Store(list)
		}
		at := func(name, version string) *corev1.ConfigMap {
			cm := configMap("ns", name, "uid-"+name)
			cm.ResourceVersion = version
			return cm
		}
		lists, events := 0, watch.NewFake()
		inf := s.NewInformer(configMapKind, listsOnly{&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				lists++
				return now.Load().DeepCopy(), nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
		}}, &corev1.ConfigMap{}, noResync, nil)
		put("7", at("a", "5"))
		ctx, cancel := context.WithCancel(t.Context())
		go inf.RunWithContext(ctx)
		cache.WaitForCacheSync(ctx.Done(), inf.HasSynced)
		wait := func(what, version string, least, most time.Duration, wantLists int) {
			t.Helper()
			begun, before := time.Now(), lists
			s.reachShared(ctx, table.Versions{configMapKind.String(): version})
			if waited := time.Since(begun); waited < least || waited > most || lists-before != wantLists {
				t.Errorf("%s: waited %v with %d lists, want %v to %v with %d", what, waited, lists-before, least, most, wantLists)
			}
		}
		later := func(d time.Duration, f func()) { time.AfterFunc(d, f) }

		wait("shown", "6", 0, 0, 0)
		put("9", at("a", "5"))
		wait("not selected", "8", sharedPatience, time.Second, 1)
		wait("not selected, known from before", "8", sharedPatience, time.Second, 0)
		put("12", at("a", "5"), at("b", "12"))
		later(3*time.Second, func() { events.Add(at("b", "12")) })
		wait("created, and told late", "12", 3*time.Second, 3100*time.Millisecond, 1)
		put("14", at("a", "13"), at("b", "12"))
		later(3*time.Second, func() { events.Modify(at("a", "13")) })
		wait("changed, and told late", "13", 3*time.Second, 3100*time.Millisecond, 1)
		put("16", at("b", "12"))
		later(3*time.Second, func() { events.Delete(at("a", "16")) })
		wait("deleted, and told late", "15", 3*time.Second, 3100*time.Millisecond, 1)
		put("17", at("b", "12"))
		wait("its versions cannot be compared", table.List, sharedPatience, time.Second, 1)
		if len(lines) > 0 {
			t.Errorf("told: %q", lines)
		}
		put("18", at("b", "18"))
		wait("never told", "18", sharedLimit, sharedLimit+time.Second, 1)
		wait("never told", "18", sharedLimit, sharedLimit+time.Second, 1)
		if len(lines) != 1 || !strings.Contains(lines[0], `"kind"="ConfigMap"`) ||
			!strings.Contains(lines[0], `"version"="18"`) {
			t.Errorf("told: %q", lines)
		}

		// Another informer of the kind, of a namespace of its own, shows the version: that says nothing of this one.
		more := watch.NewFake()
		beside := s.NewInformer(configMapKind, listsOnly{&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "20"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return more, nil },
		}}, &corev1.ConfigMap{}, noResync, nil)
		go beside.RunWithContext(ctx)
		cache.WaitForCacheSync(ctx.Done(), beside.HasSynced)
		put("20", at("b", "19"))
		later(3*time.Second, func() { events.Modify(at("b", "19")) })
		wait("shown by another informer", "19", 3*time.Second, 3100*time.Millisecond, 1)
		wait("shown by another informer, known from before", "20", 0, time.Second, 0)
		cancel()
		events.Stop()
		more.Stop()
	})
}
