package view

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

// stored is the rota of healthy on a real API server, without reports.
type stored struct {
	t      *testing.T
	cfg    *rest.Config
	client kubernetes.Interface
	ns     string
	table  *table.Table
}

func newStored(t *testing.T) *stored {
	t.Helper()
	cfg := controlplane.For(t).Config()
	s := &stored{t: t, cfg: cfg, client: kubernetes.NewForConfigOrDie(cfg), ns: controlplane.Namespace(t), table: healthy(t).table}
	cm, err := s.client.CoreV1().ConfigMaps(s.ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Labels: map[string]string{names.LabelRota: "web"},
	}}, metav1.CreateOptions{})
	s.check(err)
	s.table.UID = string(cm.UID)
	s.put()
	for _, id := range []string{"a", "b"} {
		s.renew(id, "43", 0)
	}
	return s
}

func (s *stored) check(err error) {
	s.t.Helper()
	require.NoError(s.t, err)
}

// put writes the table.
func (s *stored) put() {
	s.t.Helper()
	cm, err := s.client.CoreV1().ConfigMaps(s.ns).Get(s.t.Context(), "web", metav1.GetOptions{})
	s.check(err)
	cm.Data = table.Encode(s.table)
	_, err = s.client.CoreV1().ConfigMaps(s.ns).Update(s.t.Context(), cm, metav1.UpdateOptions{})
	s.check(err)
}

// renew writes a member's Lease as the member does, with a clock that is ahead by so much.
func (s *stored) renew(id, epoch string, ahead time.Duration) {
	s.t.Helper()
	leases := s.client.CoordinationV1().Leases(s.ns)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: names.Lease("web", id), Labels: map[string]string{names.LabelRota: "web"},
		Annotations: map[string]string{names.AnnotationGate: names.GateOpen, names.AnnotationEpoch: epoch, names.AnnotationTableUID: s.table.UID},
	}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &id, RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(ahead))), LeaseDurationSeconds: ptr.To(int32(15)),
	}}
	there, err := leases.Get(s.t.Context(), l.Name, metav1.GetOptions{})
	if err != nil {
		_, err = leases.Create(s.t.Context(), l, metav1.CreateOptions{})
	} else {
		l.ResourceVersion = there.ResourceVersion
		_, err = leases.Update(s.t.Context(), l, metav1.UpdateOptions{})
	}
	s.check(err)
}

// transport is an http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestReadDuringExpel: b is expelled and the table written again between the reads of the table and of the Leases. The
// table that was read is then older than what the Leases tell. It is no old copy.
func TestReadDuringExpel(t *testing.T) {
	s := newStored(t)
	s.check(s.client.CoordinationV1().Leases(s.ns).Delete(t.Context(), names.Lease("web", "b"), metav1.DeleteOptions{}))
	cfg := rest.CopyConfig(s.cfg)
	swapped := false
	cfg.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			answer, err := inner.RoundTrip(r)
			if strings.HasSuffix(r.URL.Path, "/configmaps/web") && !swapped {
				swapped = true
				s.table.Epoch = 44
				s.put()
				s.renew("a", "44", 0)
			}
			return answer, err
		})
	})
	r, err := Read(t.Context(), cfg, s.ns, "web")
	s.check(err)
	if r.Epoch != 43 || !swapped {
		t.Fatalf("the table has epoch %d", r.Epoch)
	}
	if slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.What == OldCopy }) {
		t.Errorf("problems %+v", r.Problems)
	}
}

// TestReadByOtherClocks: neither this machine's clock nor a member's says whether a member renews its Lease, with one
// look as with several. A member that does not renew is silent by the API server's clock, or by what a Reader saw.
func TestReadByOtherClocks(t *testing.T) {
	silent := func(r *Rota) (ids []string) {
		for _, m := range r.Members {
			if m.State == Silent {
				ids = append(ids, m.ID)
			}
		}
		return ids
	}
	for name, c := range map[string]struct {
		here   time.Duration // the clock of this machine is ahead by so much
		there  time.Duration // that of member b
		age    time.Duration // b renewed so long ago
		apart  time.Duration // the API server that wrote b's Lease is behind by so much
		server bool          // the API server tells times
		renews bool          // b renews between the looks, which are 2 s apart
		want   []bool        // whether b is silent, by look
		known  []bool        // whether that is known, by look
	}{
		"all clocks are right":       {server: true, renews: true, want: []bool{false, false}, known: []bool{true, true}},
		"this machine is ahead":      {here: time.Hour, server: true, renews: true, want: []bool{false, false}, known: []bool{true, true}},
		"this machine is behind":     {here: -time.Hour, server: true, renews: true, want: []bool{false, false}, known: []bool{true, true}},
		"the member is ahead":        {there: time.Hour, server: true, renews: true, want: []bool{false, false}, known: []bool{true, true}},
		"the member is behind":       {there: -time.Hour, server: true, renews: true, want: []bool{false, false}, known: []bool{true, true}},
		"dead":                       {age: 17 * time.Second, server: true, want: []bool{true, true}, known: []bool{true, true}},
		"dead, and was ahead":        {there: time.Hour, here: -time.Hour, age: 17 * time.Second, server: true, want: []bool{true, true}, known: []bool{true, true}},
		"dying":                      {age: 15 * time.Second, server: true, want: []bool{false, true}, known: []bool{true, true}},
		"API servers differ":         {apart: 20 * time.Second, server: true, renews: true, want: []bool{true, false}, known: []bool{true, true}},
		"nothing tells":              {renews: true, want: []bool{false, false}, known: []bool{false, true}},
		"nothing tells, not renewed": {age: time.Hour, want: []bool{false, false, false, false, false, false, false, false, true}, known: []bool{false, false, false, false, false, false, false, false, true}},
	} {
		var m memory
		in := healthy(t)
		for look, want := range c.want {
			at := now.Add(time.Duration(2*look) * time.Second)
			in.listed, in.at = listedAt(at), at.Add(c.here)
			in.listed.begun, in.listed.ended = at.Add(c.here), at.Add(c.here)
			for id, l := range in.leases {
				wrote := at
				if id == "b" {
					if wrote = at.Add(-c.apart); !c.renews {
						wrote = now.Add(-c.age)
					}
				}
				renew(&l, wrote)
				if id == "b" {
					l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(wrote.Add(c.there)))
				}
				if !c.server {
					l.ManagedFields = nil
				}
				in.leases[id] = l
			}
			r := m.look(in)
			if got := silent(r); slices.Contains(got, "b") != want || slices.Contains(got, "a") {
				t.Errorf("%s: look %d: silent %q, left %v", name, look, got, r.Members[1].Left)
			}
			if got := r.Members[1].Left != nil; got != c.known[look] {
				t.Errorf("%s: look %d: known %v, unknown %v", name, look, got, r.Unknown)
			}
		}
	}
}

// TestReadDates: the API server tells its time, and when a Lease was renewed.
func TestReadDates(t *testing.T) {
	s := newStored(t)
	s.renew("b", "43", -time.Hour)
	r, err := Read(t.Context(), s.cfg, s.ns, "web")
	s.check(err)
	b := r.Members[1]
	if b.State != Working || b.Left == nil || *b.Left < 1 || *b.Left > 15 {
		t.Errorf("%+v", b)
	}
	if b.ClockAhead == nil || *b.ClockAhead > -3500 || *b.ClockAhead < -3700 {
		t.Errorf("clock %v", b.ClockAhead)
	}
	if len(r.Unknown) > 0 {
		t.Errorf("unknown %v", r.Unknown)
	}
}

// A rota that is not there may never have been, or have gone with its namespace.
func TestReadWithoutNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("on the real API server")
	}
	t.Parallel()
	cfg := controlplane.For(t).Config()
	_, err := Read(t.Context(), cfg, "never-made", "web")
	if !errors.Is(err, ErrNoRota) || !strings.Contains(err.Error(), "there is no namespace never-made") {
		t.Errorf("in a namespace that there is not: %v", err)
	}
	_, err = Read(t.Context(), cfg, controlplane.Namespace(t), "web")
	if !errors.Is(err, ErrNoRota) || !strings.Contains(err.Error(), "no member has ever started") {
		t.Errorf("in an empty namespace: %v", err)
	}
}

// A kind whose group or name is not served is found, whatever else there is.
func TestNotServed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := map[string]string{
			"/api":                     `{"kind":"APIVersions","versions":["v1"]}`,
			"/apis":                    `{"kind":"APIGroupList","groups":[{"name":"web.example.com","versions":[{"groupVersion":"web.example.com/v1","version":"v1"}]},{"name":"broken","versions":[{"groupVersion":"broken/v1","version":"v1"}]}]}`,
			"/api/v1":                  `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod"},{"name":"pods/log","kind":"Log"}]}`,
			"/apis/web.example.com/v1": `{"kind":"APIResourceList","groupVersion":"web.example.com/v1","resources":[{"name":"websites","kind":"Website"}]}`,
		}[r.URL.Path]
		if answer == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	disco := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}).Discovery()
	log, page, other := schema.GroupKind{Kind: "Log"}, schema.GroupKind{Group: website.Group, Kind: "Page"}, schema.GroupKind{Group: "gone", Kind: "X"}
	gone, err := NotServed(t.Context(), disco, []schema.GroupKind{{Kind: "Pod"}, log, website, page, other})
	if want := []schema.GroupKind{log, page, other}; err != nil || !slices.Equal(gone, want) {
		t.Errorf("not served: %v, %v, want %v", gone, err, want)
	}
	if _, err := NotServed(t.Context(), disco, []schema.GroupKind{{Group: "broken", Kind: "X"}}); err == nil {
		t.Error("a group that cannot be read counts as gone")
	}
}
