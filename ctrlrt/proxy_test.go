package ctrlrt_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/controlplane"
)

// stripper is a proxy before the API server that drops shard selectors while told to: to a client the same as a server
// without the feature gate, or as the other one of two servers.
type stripper struct {
	*httptest.Server
	on atomic.Bool
}

func newStripper(t *testing.T, cfg *rest.Config) *stripper {
	t.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	s := &stripper{}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}, // connections are cut all the time
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if query := r.Out.URL.Query(); s.on.Load() && query.Has("shardSelector") {
				query.Del("shardSelector")
				r.Out.URL.RawQuery = query.Encode()
			}
		},
	}
	s.Server = httptest.NewServer(proxy)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// set changes what the proxy does, and cuts the watches, as a restart of the API server would.
func (s *stripper) set(on bool) {
	s.on.Store(on)
	s.CloseClientConnections()
}

func (s *stripper) config() *rest.Config {
	// With a dialer of its own client-go keeps more than two connections over plain HTTP.
	return &rest.Config{Host: s.URL, Dial: (&net.Dialer{}).DialContext}
}

// R11: an API server may begin to ignore the shard selector, and to honor it again, under running members; that costs
// traffic, which they tell, and nothing else.
func TestR11ShardSelectorIgnored(t *testing.T) {
	t.Parallel()
	const objects = 40
	c, namespace := adminClient(t), controlplane.Namespace(t)
	proxy := newStripper(t, controlplane.For(t).Config())
	j := &uidJournal{last: map[string]string{}, seen: map[string]bool{}, busy: map[types.UID]string{},
		story: map[string][]string{}}
	start := func(pod string) *replica {
		return startMemberVia(t, proxy.config(), namespace, pod, rota.Options{Delivery: sharding.ShardSelector},
			func(mgr *ctrlrt.Manager) error {
				return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(j.reconcile(pod, mgr.GetClient()))
			})
	}
	versions := map[string]string{}
	for i := range objects {
		cm := configMap(namespace, fmt.Sprint("object-", i), "0")
		if err := c.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		versions[cm.Name] = cm.ResourceVersion
	}
	update := func(value string) {
		t.Helper()
		for name := range versions {
			cm := configMap(namespace, name, "")
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, value))
			if err := c.Patch(t.Context(), cm, patch); err != nil {
				t.Fatal(err)
			}
			versions[name] = cm.ResourceVersion
		}
	}
	right := func(members ...*replica) func() string {
		return func() string {
			if problem := settled(members...)(); problem != "" {
				return problem
			}
			j.mu.Lock()
			for name, version := range versions {
				if !j.seen[version] {
					j.mu.Unlock()
					return fmt.Sprintf("%s was never reconciled at version %s", name, version)
				}
			}
			j.mu.Unlock()
			for _, m := range members {
				var list corev1.ConfigMapList
				if err := m.GetClient().List(t.Context(), &list, ctrlrt.Share); err != nil {
					return err.Error()
				}
				for _, cm := range list.Items {
					if !inShare(m.Rota(), configMapKind, &cm) {
						return fmt.Sprintf("%s caches %s, which is another member's", m.Rota().ID(), cm.Name)
					}
				}
			}
			return ""
		}
	}
	ignored := func(want bool, members ...*replica) func() string {
		n := 0
		return func() string {
			n++
			update(fmt.Sprint("ignored-", want, n))
			for _, m := range members {
				if got, known := m.Rota().Status().Ignored[configMapKind]; !known || got != want {
					return fmt.Sprintf("%s says that the selector is ignored: %t (known: %t), want %t", m.Rota().ID(), got, known,
						want)
				}
			}
			return ""
		}
	}
	a, b := start("a"), start("b")
	eventually(t, 30*time.Second, right(a, b))
	eventually(t, 30*time.Second, ignored(false, a, b))
	proxy.set(true)
	update("stripped")
	eventually(t, 30*time.Second, right(a, b))
	eventually(t, 30*time.Second, ignored(true, a, b))
	d := start("d")
	update("joining")
	eventually(t, 30*time.Second, right(a, b, d))
	proxy.set(false)
	update("again")
	eventually(t, 30*time.Second, right(a, b, d))
	eventually(t, 60*time.Second, ignored(false, a, b, d))
	go a.stop()
	proxy.set(true)
	update("leaving")
	a.leave(t)
	eventually(t, 30*time.Second, right(b, d))
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, err := range j.errs {
		t.Error(err)
	}
}
