package ctrlrt_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// fleet is a set of members behind a load balancer: each has files of its own objects, and gets posts about any.
type fleet struct {
	t         *testing.T
	namespace string
	wrong     atomic.Int32

	mu         sync.Mutex
	members    []*fleetMember
	next       int
	reconciled map[string]int    // reconciles by object
	by         map[string]string // the last Pod that reconciled an object
}

type fleetMember struct {
	*replica
	pod          string
	files, posts http.Handler
}

func (f *fleet) start(pod string) *fleetMember {
	f.t.Helper()
	m := &fleetMember{pod: pod}
	events := make(chan event.GenericEvent)
	object := func(req *http.Request) (types.NamespacedName, bool) {
		return types.NamespacedName{Namespace: f.namespace, Name: path.Base(req.URL.Path)}, true
	}
	m.replica = startMember(f.t, f.namespace, pod, rota.Options{Address: "127.0.0.1:0"}, func(mgr *ctrlrt.Manager) error {
		err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
			WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{})).
			Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.reconciled[req.Name]++
				f.by[req.Name] = pod
				return reconcile.Result{}, nil
			}))
		if err != nil {
			return err
		}
		r := mgr.Rota()
		m.files, err = r.Forward(configMapKind, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if key, _ := object(req); !r.Owns(configMapKind, key) {
				f.wrong.Add(1)
			}
			_, _ = w.Write([]byte(pod))
		}), object)
		return err
	})
	m.posts = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		key, _ := object(req)
		events <- event.GenericEvent{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name}}}
		w.WriteHeader(http.StatusAccepted)
	})
	return m
}

// admit has the load balancer send requests to a member, and remove no more to one.
func (f *fleet) admit(m *fleetMember) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = append(f.members, m)
}

func (f *fleet) remove() *fleetMember {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[0]
	f.members = f.members[1:]
	return m
}

func (f *fleet) choose() *fleetMember {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	return f.members[f.next%len(f.members)]
}

// seen returns how often an object was reconciled, and which Pod did it last.
func (f *fleet) seen(name string) (int, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reconciled[name], f.by[name]
}

// dropped returns how many events the member has dropped.
func (m *fleetMember) dropped(t *testing.T) (n float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(m.Rota().Collector()))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "rota_events_dropped_total" {
			for _, metric := range family.GetMetric() {
				n += metric.GetCounter().GetValue()
			}
		}
	}
	return n
}

// A post to a member that does not own the object leads to one reconcile, by the owner.
func (f *fleet) testEvents(objects int) {
	f.t.Helper()
	for i := range objects {
		name := fmt.Sprint("object-", i)
		key := types.NamespacedName{Namespace: f.namespace, Name: name}
		owner, other := f.members[0], f.members[1]
		for _, m := range f.members {
			if m.Rota().Owns(configMapKind, key) {
				owner = m
			} else {
				other = m
			}
		}
		before, _ := f.seen(name)
		send(other.posts, http.MethodPost, name)
		eventually(f.t, time.Minute, func() string {
			if n, by := f.seen(name); n != before+1 || by != owner.pod {
				return fmt.Sprintf("%s was reconciled %d times, at last by %s; want once, by %s", name, n-before, by, owner.pod)
			}
			return ""
		})
	}
	for _, m := range f.members {
		if n := m.dropped(f.t); n > 0 {
			f.t.Errorf("%s dropped %v events", m.pod, n)
		}
	}
}

func send(h http.Handler, method, name string) *httptest.ResponseRecorder {
	resp := httptest.NewRecorder()
	h.ServeHTTP(resp, httptest.NewRequest(method, "/"+name, nil))
	return resp
}

// During a rolling restart, every file comes from its object's owner, and every event about an object that reaches any
// member has its owner reconcile the object.
func TestForward(t *testing.T) {
	const objects, members = 300, 3
	c := adminClient(t)
	f := &fleet{t: t, namespace: controlplane.Namespace(t), reconciled: map[string]int{}, by: map[string]string{}}
	for i := range objects {
		require.NoError(t, c.Create(t.Context(), configMap(f.namespace, fmt.Sprint("object-", i), "1")))
	}
	var first []*replica
	for i := range members {
		m := f.start(fmt.Sprint("first-", i))
		f.admit(m)
		first = append(first, m.replica)
	}
	eventually(t, time.Minute, settled(first...))
	eventually(t, time.Minute, func() string { // what slots brought
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.by) < objects {
			return "not all objects were reconciled"
		}
		return ""
	})
	f.testEvents(objects / 3)

	rolled := make(chan struct{})
	go func() {
		defer close(rolled)
		for i := range members {
			m := f.start(fmt.Sprint("second-", i))
			select {
			case <-m.Rota().Joined():
			case <-t.Context().Done():
				return
			}
			f.admit(m)
			f.remove().leave(t)
		}
	}()
	longest, got, before := time.Duration(0), map[string]int{}, map[string]int{}
	for i := 0; ; i++ {
		select {
		case <-rolled:
			if i >= objects {
				goto over
			}
		default:
		}
		name := fmt.Sprint("object-", i%objects)
		if i < objects {
			before[name], _ = f.seen(name)
			if resp := send(f.choose().posts, http.MethodPost, name); resp.Code != http.StatusAccepted {
				t.Fatalf("post about %s: status %d, %s", name, resp.Code, resp.Body)
			}
		}
		begun := time.Now()
		resp := send(f.choose().files, http.MethodGet, name)
		longest = max(longest, time.Since(begun))
		if resp.Code != http.StatusOK {
			t.Fatalf("file of %s: status %d, %s", name, resp.Code, resp.Body)
		}
		got[resp.Body.String()]++
	}
over:
	eventually(t, time.Minute, func() string {
		for name, n := range before {
			if now, _ := f.seen(name); now <= n {
				return name + " was not reconciled after the post"
			}
		}
		return ""
	})
	t.Logf("files by member: %v; longest wait %v", got, longest)
	if n := f.wrong.Load(); n > 0 || len(got) < members {
		t.Errorf("%d files came from members that did not own the object; files by member: %v", n, got)
	}
	o, err := f.choose().Rota().Owner(t.Context(), configMapKind, types.NamespacedName{Namespace: f.namespace, Name: "object-1"})
	if err != nil || o.Member == "" || o.Address == "" || o.Epoch == 0 {
		t.Errorf("owner %+v, %v", o, err)
	}
	if _, err := f.choose().Rota().Owner(t.Context(), secretKind, types.NamespacedName{}); err == nil {
		t.Error("an owner of a kind that no controller is for")
	}
}
