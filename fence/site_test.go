package fence_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

const (
	rotaName = "website"
	account  = "website-operator"
)

var (
	websites   = schema.GroupResource{Group: "web.example.com", Resource: "websites"}
	configMaps = schema.GroupResource{Resource: "configmaps"}
)

// site is a namespace with a rota of no processes: its table is written here, by the production store.
type site struct {
	testing.TB
	plane     *controlplane.ControlPlane
	namespace string
	admin     kubernetes.Interface
	store     *store.Kubernetes
	table     member.Snapshot
	options   fence.Options
}

// newSite makes a namespace with the ServiceAccount of an operator that may do everything, and the kind Website.
func newSite(tb testing.TB, plane *controlplane.ControlPlane) *site {
	tb.Helper()
	require.NoError(tb, plane.InstallCRDs(tb.Context(), config.CRD))
	s := &site{TB: tb, plane: plane, namespace: plane.Namespace(tb), admin: kubernetes.NewForConfigOrDie(plane.Config())}
	s.options = fence.Options{
		Rota:           types.NamespacedName{Namespace: s.namespace, Name: rotaName},
		ServiceAccount: types.NamespacedName{Namespace: s.namespace, Name: account},
		Resources:      []schema.GroupResource{websites, configMaps},
	}
	_, errAccount := s.admin.CoreV1().ServiceAccounts(s.namespace).Create(tb.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	_, errBinding := s.admin.RbacV1().ClusterRoleBindings().Create(tb.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: account}},
	}, metav1.CreateOptions{})
	require.NoError(tb, errors.Join(errAccount, errBinding))
	var err error
	if s.store, err = store.NewKubernetes(plane.Config(), store.Options{Namespace: s.namespace, Name: rotaName}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.store.Close)
	return s
}

// pod makes a Pod object of the operator; nothing runs it.
func (s *site) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := s.admin.CoreV1().Pods(s.namespace).Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "manager", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
	return pod
}

// as returns the configuration of a process of the operator in that Pod, nil: with a token that names none.
func (s *site) as(pod *corev1.Pod) *rest.Config {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	request, err := s.admin.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.Context(), account, request, metav1.CreateOptions{})
	require.NoError(s, err)
	cfg := rest.AnonymousClientConfig(s.plane.Config())
	cfg.QPS, cfg.BearerToken = -1, request.Status.Token
	return cfg
}

// on returns the configuration for the i-th API server.
func (s *site) on(cfg *rest.Config, i int) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Host = s.plane.APIServers()[i]
	return cfg
}

// members writes a table with these Pods as its members, and returns when that was answered.
func (s *site) members(pods ...*corev1.Pod) time.Time {
	s.Helper()
	var list []table.Member
	for _, pod := range pods {
		list = append(list, table.Member{ID: pod.Name + "-x7k2p", Pod: pod.Name, PodUID: string(pod.UID), Weight: 1, MinFormat: 1, MaxFormat: 1, Joined: 1763712000})
	}
	return s.write(list)
}

func (s *site) write(members []table.Member) time.Time {
	s.Helper()
	next := table.New(256, slot.KeyName, 1)
	if s.table.Table != nil {
		next.Seal(s.table.Table.Epoch + 1)
		next.UID = s.table.Table.UID
	}
	for _, m := range members {
		next.Put(m)
	}
	var err error
	if s.table.Missing() {
		s.table, _, err = s.store.CreateTable(s.Context(), next, 10*time.Second)
	} else {
		s.table, _, err = s.store.SwapTable(s.Context(), next, s.table.UID, s.table.Version, 10*time.Second)
	}
	require.NoError(s, err)
	return time.Now()
}

// install applies the fence and waits until every API server has it. The table must exist.
func (s *site) install() {
	s.Helper()
	require.NoError(s, fence.Apply(s.Context(), s.plane.Config(), s.options))
	s.enforced()
}

// enforced waits until every API server refuses a token without a Pod, and knows the present table.
func (s *site) enforced() {
	s.Helper()
	nobody := s.as(nil)
	for i := range s.plane.APIServers() {
		client := kubernetes.NewForConfigOrDie(s.on(nobody, i))
		require.Eventually(s, 30*time.Second, func() error {
			_, err := client.CoreV1().ConfigMaps(s.namespace).Create(s.Context(), configMap("probe"), dryRun)
			if !refused(err) {
				return errors.Join(fmt.Errorf("API server %d has no fence yet", i), err)
			}
			return nil
		})
	}
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// refused says whether the fence refused the request.
func refused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "the fence of rota")
}
