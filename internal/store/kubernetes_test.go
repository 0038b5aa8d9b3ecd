package store_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/storetest"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

// TestKubernetes runs the suite as a user who has exactly the permissions of Rules.
func TestKubernetes(t *testing.T) {
	controlplane.For(t)
	storetest.Run(t, func(t *testing.T) storetest.Target {
		k := newTamper(t)
		k.grant(t, permission.Rules(rotaName))
		return storetest.Target{Store: k.store(t), Other: k.store(t), Tamper: k}
	})
}

const (
	rotaName = "web"
	userName = "somebody"
)

// kubeTamper meddles as an administrator, in a namespace of its own.
type kubeTamper struct {
	admin     kubernetes.Interface
	namespace string
	config    *rest.Config

	mu    sync.Mutex
	conns []net.Conn
}

func newTamper(t *testing.T) *kubeTamper {
	plane := controlplane.For(t)
	config, err := plane.UserConfig(userName)
	require.NoError(t, err)
	k := &kubeTamper{admin: kubernetes.NewForConfigOrDie(plane.Config()), namespace: plane.Namespace(t), config: config}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.conns = append(k.conns, conn)
		}
		return conn, err
	}
	return k
}

func (k *kubeTamper) store(t *testing.T) *store.Kubernetes {
	s, err := store.NewKubernetes(k.config, store.Options{
		Namespace: k.namespace, Name: rotaName, Instance: "web-0-x7k2p",
		Report: func(what string, err error) { t.Logf("reported: %s: %v", what, err) },
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// grant gives the user these rules and waits until the authorizer knows them.
func (k *kubeTamper) grant(t *testing.T, rules []rbacv1.PolicyRule) {
	ctx := t.Context()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "rota"}, Rules: rules}
	_, errRole := k.admin.RbacV1().Roles(k.namespace).Create(ctx, role, metav1.CreateOptions{})
	_, errBinding := k.admin.RbacV1().RoleBindings(k.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "rota"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "rota"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: userName}},
	}, metav1.CreateOptions{})
	require.NoError(t, errors.Join(errRole, errBinding))
	if len(rules) == 0 {
		return
	}
	s := k.store(t)
	require.Eventually(t, 20*time.Second, func() error {
		_, err := s.ReadTable(ctx)
		return err
	})
}

func (k *kubeTamper) configMap(t *testing.T) *corev1.ConfigMap {
	cm, err := k.admin.CoreV1().ConfigMaps(k.namespace).Get(t.Context(), rotaName, metav1.GetOptions{})
	require.NoError(t, err)
	return cm
}

func (k *kubeTamper) RemoveTable(t *testing.T) {
	require.NoError(t, k.admin.CoreV1().ConfigMaps(k.namespace).Delete(t.Context(), rotaName, metav1.DeleteOptions{}))
}

func (k *kubeTamper) Text(t *testing.T) map[string]string { return k.configMap(t).Data }

func (k *kubeTamper) EditTable(t *testing.T, edit func(map[string]string)) {
	cm := k.configMap(t)
	edit(cm.Data)
	_, err := k.admin.CoreV1().ConfigMaps(k.namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func (k *kubeTamper) RestoreTable(t *testing.T, text map[string]string) {
	k.RemoveTable(t)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: rotaName}, Data: text}
	_, err := k.admin.CoreV1().ConfigMaps(k.namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (k *kubeTamper) RemoveLease(t *testing.T, id string) {
	require.NoError(t, k.admin.CoordinationV1().Leases(k.namespace).Delete(t.Context(), names.Lease(rotaName, id),
		metav1.DeleteOptions{}))
}

func (k *kubeTamper) TouchLease(t *testing.T, id string) {
	leases := k.admin.CoordinationV1().Leases(k.namespace)
	lease, err := leases.Get(t.Context(), names.Lease(rotaName, id), metav1.GetOptions{})
	require.NoError(t, err)
	lease.Annotations["example.com/touched"] = time.Now().String()
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func (k *kubeTamper) HoldLease(t *testing.T, id, holder string) {
	leases := k.admin.CoordinationV1().Leases(k.namespace)
	lease, err := leases.Get(t.Context(), names.Lease(rotaName, id), metav1.GetOptions{})
	require.NoError(t, err)
	lease.Spec.HolderIdentity = ptr.To(holder)
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func (k *kubeTamper) Disconnect(*testing.T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, conn := range k.conns {
		_ = conn.Close()
	}
	k.conns = nil
}

// TestForeignMetadataStays: what others add to our objects survives our writes.
func TestForeignMetadataStays(t *testing.T) {
	k := newTamper(t)
	k.grant(t, permission.Rules(rotaName))
	s, ctx := k.store(t), t.Context()
	if _, _, err := s.CreateTable(ctx, storetest.Table(1), time.Minute); err != nil {
		t.Fatal(err)
	}
	lease, _, err := s.CreateLease(ctx, member.Lease{ID: "a"}, time.Minute)
	require.NoError(t, err)
	cm := k.configMap(t)
	cm.Labels["example.com/team"] = "blue"
	_, err = k.admin.CoreV1().ConfigMaps(k.namespace).Update(ctx, cm, metav1.UpdateOptions{})
	require.NoError(t, err)
	k.TouchLease(t, "a")

	snapshot, err := s.ReadTable(ctx)
	require.NoError(t, err)
	if _, _, err := s.SwapTable(ctx, storetest.Table(2), snapshot.UID, snapshot.Version, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.RenewLease(ctx, lease, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, want := k.configMap(t).Labels, map[string]string{"example.com/team": "blue", names.LabelRota: rotaName}; !maps.Equal(got, want) {
		t.Errorf("labels of the table: %v, want %v", got, want)
	}
	obj, err := k.admin.CoordinationV1().Leases(k.namespace).Get(ctx, names.Lease(rotaName, "a"), metav1.GetOptions{})
	require.NoError(t, err)
	got := slices.Sorted(maps.Keys(obj.Annotations))
	want := []string{"example.com/touched", names.AnnotationEpoch, names.AnnotationFormat, names.AnnotationGate, names.AnnotationTableUID}
	if !slices.Equal(got, want) || obj.Labels[names.LabelRota] != rotaName || *obj.Spec.HolderIdentity != "a" || *obj.Spec.LeaseDurationSeconds != 15 {
		t.Errorf("lease: annotations %v, want %v; labels %v, spec %v", got, want, obj.Labels, obj.Spec)
	}
}

// TestPermissions: without any rule, each refusal names the user and a rule that Rules contains.
func TestPermissions(t *testing.T) {
	k := newTamper(t)
	k.grant(t, nil)
	reported := make(chan error, 100)
	s, err := store.NewKubernetes(k.config, store.Options{Namespace: k.namespace, Name: rotaName, Report: func(_ string, err error) {
		select {
		case reported <- err:
		default:
		}
	}})
	require.NoError(t, err)
	defer s.Close()
	lease := member.Lease{ID: "a", UID: "1", Version: "1"}
	calls := map[string]func(context.Context) (member.Outcome, error){
		"get configmaps": func(ctx context.Context) (member.Outcome, error) {
			_, err := s.ReadTable(ctx)
			return member.OutcomeFailed, err
		},
		"create configmaps": func(ctx context.Context) (member.Outcome, error) {
			_, o, err := s.CreateTable(ctx, storetest.Table(1), time.Minute)
			return o, err
		},
		"update configmaps": func(ctx context.Context) (member.Outcome, error) {
			_, o, err := s.SwapTable(ctx, storetest.Table(1), "1", "1", time.Minute)
			return o, err
		},
		"create leases.coordination.k8s.io": func(ctx context.Context) (member.Outcome, error) {
			_, o, err := s.CreateLease(ctx, lease, time.Minute)
			return o, err
		},
		"update leases.coordination.k8s.io": func(ctx context.Context) (member.Outcome, error) {
			_, o, err := s.RenewLease(ctx, lease, time.Minute)
			return o, err
		},
		"delete leases.coordination.k8s.io": func(ctx context.Context) (member.Outcome, error) {
			return s.DeleteLease(ctx, "a", "1", "1", time.Minute)
		},
		"get leases.coordination.k8s.io": func(ctx context.Context) (member.Outcome, error) {
			return s.DeleteLease(ctx, "a", "", "", time.Minute)
		},
		"list configmaps": func(ctx context.Context) (member.Outcome, error) {
			ctx, cancel := context.WithCancel(ctx)
			go func() { _ = s.WatchTable(ctx, func(member.Snapshot, bool) {}) }()
			defer cancel()
			return member.OutcomeFailed, <-reported
		},
		"list leases.coordination.k8s.io": func(ctx context.Context) (member.Outcome, error) {
			ctx, cancel := context.WithCancel(ctx)
			go func() { _ = s.WatchLeases(ctx, true, nil, func(store.Leases) {}) }()
			defer cancel()
			for err := range reported {
				if strings.Contains(err.Error(), "leases") {
					return member.OutcomeFailed, err
				}
			}
			return member.OutcomeUnknown, nil
		},
		"create events.events.k8s.io": func(ctx context.Context) (member.Outcome, error) {
			s.Notify(ctx, member.Notify{Reason: "Expelled", Message: "x"})
			for err := range reported {
				if strings.Contains(err.Error(), "events") {
					return member.OutcomeFailed, err
				}
			}
			return member.OutcomeUnknown, nil
		},
	}
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			o, err := call(t.Context())
			var refused *permission.Error
			if !errors.As(err, &refused) || o != member.OutcomeFailed {
				t.Fatalf("outcome %v, error %v; want a PermissionError", o, err)
			}
			if !strings.Contains(err.Error(), userName+" may not "+what) || !strings.Contains(err.Error(), k.namespace) || refused.User != userName {
				t.Errorf("error of user %q: %v", refused.User, err)
			}
			rule := refused.Rule()
			if !slices.ContainsFunc(permission.Rules(rotaName), func(r rbacv1.PolicyRule) bool {
				return slices.Equal(r.APIGroups, rule.APIGroups) && slices.Equal(r.Resources, rule.Resources) &&
					slices.Equal(r.ResourceNames, rule.ResourceNames) && slices.Contains(r.Verbs, rule.Verbs[0])
			}) {
				t.Errorf("rule %v is not among Rules", rule)
			}
			if what == "update configmaps" {
				t.Log(err)
			}
		})
	}
}

// TestNotify: an event on the ConfigMap.
func TestNotify(t *testing.T) {
	k := newTamper(t)
	k.grant(t, permission.Rules(rotaName))
	s := k.store(t)
	created, _, err := s.CreateTable(t.Context(), storetest.Table(1), time.Minute)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel() // the last words of a member come when its context has ended
	s.Notify(ended, member.Notify{Reason: "Expelled", Message: strings.Repeat("é", 1000), Warning: true})
	s.Close()
	events, err := k.admin.CoreV1().Events(k.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	if len(events.Items) != 1 {
		t.Fatalf("%d events, want 1", len(events.Items))
	}
	e := events.Items[0]
	if e.InvolvedObject.Kind != "ConfigMap" || string(e.InvolvedObject.UID) != created.UID || e.Reason != "Expelled" || e.Type != corev1.EventTypeWarning {
		t.Errorf("event %+v", e)
	}
}
