package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
	"github.com/rota-dev/rota/test/require"
)

// history is an API server whose every change is kept.
type history struct {
	random  *rand.Rand
	mu      sync.Mutex
	changes []*corev1.ConfigMap // in order; no data: deleted
	version int
	watch   *watch.RaceFreeFakeWatcher
}

func (h *history) change(name string, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.at(h.version)[name]
	if deleted && before == nil {
		return
	}
	h.version += 1 + h.random.IntN(3)
	obj := configMap("ns", name, "uid-"+name)
	obj.ResourceVersion = strconv.Itoa(h.version)
	if !deleted {
		obj.Data = map[string]string{"is": "there"}
	}
	h.changes = append(h.changes, obj)
	if h.watch == nil || h.watch.IsStopped() {
		return
	}
	switch {
	case deleted:
		h.watch.Delete(obj.DeepCopy())
	case before == nil:
		h.watch.Add(obj.DeepCopy())
	default:
		h.watch.Modify(obj.DeepCopy())
	}
}

// at returns what there was at a version. h.mu is held.
func (h *history) at(version int) map[string]*corev1.ConfigMap {
	out := map[string]*corev1.ConfigMap{}
	for _, obj := range h.changes {
		switch n, _ := strconv.Atoi(obj.ResourceVersion); {
		case n > version:
			return out
		case obj.Data == nil:
			delete(out, obj.Name)
		default:
			out[obj.Name] = obj
		}
	}
	return out
}

// lags returns what a store that shows everything up to a version should show. Of each object it may show more.
func (h *history) lags(store cache.Store, version string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, _ := strconv.Atoi(version)
	then := h.at(n)
	for name, obj := range then {
		about, there, _ := store.GetByKey("ns/" + name)
		if there && resourceversion.Compare(VersionOf(about), obj.ResourceVersion) >= 0 {
			continue
		}
		gone := false
		for _, c := range h.changes {
			gone = gone || c.Name == name && c.Data == nil && resourceversion.Compare(c.ResourceVersion, version) > 0
		}
		if there || !gone {
			return fmt.Sprintf("%s is to be at %s (there: %t)", name, obj.ResourceVersion, there)
		}
	}
	for _, obj := range store.List() {
		about := obj.(*corev1.ConfigMap)
		if then[about.Name] == nil && resourceversion.Compare(about.ResourceVersion, version) <= 0 {
			return fmt.Sprintf("%s at %s was deleted before", about.Name, about.ResourceVersion)
		}
	}
	return ""
}

func (h *history) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(h.version)}}
	for _, obj := range h.at(h.version) { // in no order
		list.Items = append(list.Items, *obj)
	}
	h.watch = watch.NewRaceFreeFake() // what changes before somebody watches is in it
	return list, nil
}

func (h *history) follow(context.Context, metav1.ListOptions) (watch.Interface, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watch, nil
}

// expire ends the watch, so that the informer lists.
func (h *history) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch != nil && !h.watch.IsStopped() {
		h.watch.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	}
}

// What is known of a store's version, where the store does not note it, is true at any time, whatever comes, and it is
// what the store notes where it does.
func TestStoreVersions(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { storeVersionsAreTrue(t, rand.New(rand.NewPCG(seed, 0)), seed) })
	}
}

func storeVersionsAreTrue(t *testing.T, random *rand.Rand, seed uint64) {
	h := &history{version: 10, random: random}
	inf := newWhole(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	known := 0
	for n := range 300 {
		if n%40 == 0 {
			synctest.Wait() // a fake watch holds so many events
		}
		name := "c" + strconv.Itoa(random.IntN(6))
		quiet := false
		switch random.IntN(30) {
		case 0:
			h.expire()
		case 1, 2, 3:
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			synctest.Wait()
			quiet = true
		case 4, 5, 6:
			h.change(name, true)
		default:
			h.change(name, false)
		}
		least := inf.Whole.versions.atLeast()
		if lag := h.lags(inf.GetStore(), least); lag != "" {
			t.Fatalf("seed %d: the store is said to show version %s, and does not: %s", seed, least, lag)
		}
		if least != "" {
			known++
		}
		newest := ""
		for _, obj := range inf.GetStore().List() {
			if v := VersionOf(obj); resourceversion.Compare(newest, v) < 0 {
				newest = v
			}
		}
		notes, ok := clientgo.StoreVersion(inf.GetStore())
		most := inf.Whole.versions.atMost()
		if resourceversion.Compare(most, newest) < 0 || ok && resourceversion.Compare(most, notes) < 0 {
			t.Fatalf("seed %d: the store is said to show at most %s, and shows %s (it notes %s)", seed, most, newest, notes)
		}
		if quiet && ok && resourceversion.Compare(least, notes) > 0 {
			t.Fatalf("seed %d: the store is said to show at least %s, and notes %s", seed, least, notes)
		}
	}
	if known < 50 {
		t.Errorf("seed %d: something was known at %d of 300 steps only", seed, known)
	}
	h.change("last", false)
	synctest.Wait()
	h.change("last", false)
	synctest.Wait()
	time.Sleep(time.Minute) // a list may have been on its way
	h.change("last", false)
	synctest.Wait()
	if least, most := inf.Whole.versions.atLeast(), inf.Whole.versions.atMost(); least != strconv.Itoa(h.version) ||
		most != least {
		t.Errorf("seed %d: at least %s, at most %s, want %d", seed, least, most, h.version)
	}
	cancel()
	wg.Wait()
}

// newWhole returns an informer of a whole kind that follows its store's version, also where the store notes it.
func newWhole(t *testing.T, h *history) *Informer {
	t.Helper()
	s := newCommon(sharding.Options{Slots: 8})
	inf := NewInformer(s, configMapKind, listsOnly{&cache.ListWatch{ListWithContextFunc: h.list,
		WatchFuncWithContext: h.follow}}, &corev1.ConfigMap{}, noResync, nil)
	if _, notes := clientgo.StoreVersion(inf.GetStore()); notes {
		require.NoError(t, inf.Whole.followVersions())
	}
	return inf
}
