package view

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/controlplane"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/table"
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
	if err != nil {
		s.t.Fatal(err)
	}
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
