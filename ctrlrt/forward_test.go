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
	reconciled map[string]int // reconciles by object
}

type fleetMember struct {
	*replica
	files, posts http.Handler
}

func (f *fleet) start(pod string) *fleetMember {
	f.t.Helper()
	m := &fleetMember{}
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

func (f *fleet) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reconciled[name]
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
	f := &fleet{t: t, namespace: controlplane.Namespace(t), reconciled: map[string]int{}}
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
			before[name] = f.count(name)
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
			if f.count(name) <= n {
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
