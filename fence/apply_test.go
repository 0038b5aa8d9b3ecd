package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// The API server finds nothing to warn of in the expressions, whatever kinds are fenced.
func TestTypeCheck(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	s.options.Resources = append(s.options.Resources, schema.GroupResource{Resource: "pods"},
		schema.GroupResource{Group: "apps", Resource: "deployments"},
		schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})
	require.NoError(t, fence.Apply(t.Context(), s.plane.Config(), s.options))
	options, outdated, err := fence.Installed(t.Context(), s.plane.Config(), s.options.Rota)
	if diff := cmp.Diff(s.options, options); err != nil || diff != "" || len(outdated) > 0 {
		t.Errorf("just applied: %v, outdated %v; options:\n%s", err, outdated, diff)
	}
	for _, name := range []string{s.options.ObjectName(), fence.KeeperName} {
		require.Eventually(t, 30*time.Second, func() error {
			policy, err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
			switch {
			case err != nil:
				return err
			case policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil:
				return fmt.Errorf("not checked yet: %+v", policy.Status)
			}
			for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
				t.Errorf("%s: %s: %s", name, warning.FieldRef, warning.Warning)
			}
			return nil
		})
	}
}

// Who applies needs what docs/deploy.md says, and no more.
func TestApplyNeedsThesePermissions(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	user := "installer-" + s.namespace
	cfg, err := s.plane.UserConfig(user)
	require.NoError(t, err)
	rules := []rbacv1.PolicyRule{
		{
			APIGroups: []string{"admissionregistration.k8s.io"}, Verbs: []string{"get", "create", "patch"},
			Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
		},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate"}},
		{
			APIGroups: []string{"authentication.k8s.io"}, Verbs: []string{"impersonate"},
			Resources: []string{"userextras/authentication.kubernetes.io/pod-uid", "userextras/authentication.kubernetes.io/pod-name"},
		},
		{APIGroups: []string{websites.Group}, Resources: []string{websites.Resource}, Verbs: []string{"list"}},
	}
	_, errRole := s.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules,
	}, metav1.CreateOptions{})
	_, errBinding := s.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	require.NoError(t, errors.Join(errRole, errBinding))
	require.Eventually(t, 30*time.Second, func() error { return fence.Apply(t.Context(), cfg, s.options) })
	if err := fence.Apply(t.Context(), cfg, s.options); err != nil {
		t.Errorf("again: %v", err)
	}
	// What it cannot look at, Check says; it is no reason not to apply.
	warnings, err := fence.Check(t.Context(), cfg, s.options)
	want := "cannot find out whether there is a ServiceAccount " + s.options.ServiceAccount.String()
	if err != nil || !contains(warnings, want) {
		t.Errorf("check: %q, %v", warnings, err)
	}
	s.members(s.pod("web-0"))
	s.website("site")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := fence.Verify(ctx, cfg, s.options); err != nil {
		t.Errorf("verify: %v", err)
	}
	name := s.options.ObjectName()
	if _, err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Patch(t.Context(), name, types.ApplyPatchType,
		[]byte(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"`+name+`"},"spec":{"failurePolicy":"Ignore"}}`),
		metav1.PatchOptions{FieldManager: "gitops", Force: ptr.To(true)}); err != nil {
		t.Fatal(err)
	}
	if err := fence.Apply(t.Context(), cfg, s.options); err == nil || !strings.Contains(err.Error(), "gitops") {
		t.Errorf("over what somebody else manages: %v, want a conflict that names them", err)
	}
}

func TestCheck(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	check := func(o fence.Options) (string, string) {
		t.Helper()
		warnings, err := fence.Check(t.Context(), s.plane.Config(), o)
		return strings.Join(warnings, "\n"), fmt.Sprint(err)
	}
	want := func(what, got string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(got, word) {
				t.Errorf("%s: %q, want %q in it", what, got, word)
			}
		}
	}
	warnings, err := check(s.options)
	want("before the first start: error", err, "<nil>")
	want("before the first start", warnings, "there is no ConfigMap "+s.namespace+"/website yet")

	wrong := s.options
	wrong.ServiceAccount.Name = "web-operator"
	wrong.Resources = []schema.GroupResource{
		{Group: "web.example.com", Resource: "pages"}, {Resource: "deployments"}, {Resource: "configmap"}, {Group: "no.such.group", Resource: "things"},
	}
	warnings, err = check(wrong)
	want("misspelled", err, "serves no resource web.example.com/pages; it has web.example.com/websites",
		"serves no resource deployments; it has apps/deployments", "no resource configmap; it has configmaps", "no resource no.such.group/things")
	want("misspelled", warnings, "there is no ServiceAccount "+s.namespace+"/web-operator")

	a := s.pod("web-0")
	s.members(a)
	if warnings, err = check(s.options); warnings != "" || err != "<nil>" {
		t.Errorf("nothing is wrong, but: %q, %s", warnings, err)
	}
	other, createErr := s.admin.CoreV1().Pods(s.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1"},
		Spec:       corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	if createErr != nil {
		t.Fatal(createErr)
	}
	gone := other.DeepCopy()
	gone.Name, gone.UID = "web-2", "00000000-0000-0000-0000-000000000000"
	s.members(a, other, gone)
	warnings, _ = check(s.options)
	want("members", warnings, "member web-1-x7k2p uses ServiceAccount "+s.namespace+"/default", "member web-2-x7k2p: there is no Pod")

	s.members(a, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}})
	_, err = check(s.options)
	want("a member without POD_UID", err, "all their writes would be refused: web-1-x7k2p", "fieldPath: metadata.uid")

	cm := configMap("not-a-table")
	cm.Data = map[string]string{"a": "b"}
	if _, err := s.admin.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.options.Rota.Name = cm.Name
	_, err = check(s.options)
	want("another ConfigMap", err, "this is not a table")
}

// Verify tells a fence that works from one that is not there, and from one whose API server does not follow ConfigMaps any
// more.
func TestVerify(t *testing.T) {
	t.Parallel()
	s := newSite(t, controlplane.New(t, controlplane.Options{}))
	s.members(s.pod("web-0"))
	verify := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return fence.Verify(ctx, s.plane.Config(), s.options)
	}
	s.options.Resources = s.options.Resources[:1]
	if err := verify(10 * time.Second); !errors.Is(err, fence.ErrUnverified) || !strings.Contains(err.Error(), "no object") {
		t.Errorf("without an object: %v", err)
	}
	s.website("site")
	if err := verify(5 * time.Second); err == nil || errors.Is(err, fence.ErrUnverified) || !strings.Contains(err.Error(), "admits the write") {
		t.Errorf("without a fence: %v", err)
	}
	require.NoError(t, fence.Apply(t.Context(), s.plane.Config(), s.options))
	require.NoError(t, verify(30*time.Second))
	for _, name := range []string{fence.KeeperName, s.options.ObjectName()} {
		bindings := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
		require.NoError(t, bindings.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	nobody := s.websites(s.as(nil))
	require.Eventually(t, 30*time.Second, func() error {
		_, err := nobody.Create(t.Context(), website("probe"), dryRun)
		return err
	})
	s.members(s.pod("web-1"))
	require.NoError(t, fence.Apply(t.Context(), s.plane.Config(), s.options))
	if err := verify(5 * time.Second); err == nil || !strings.Contains(err.Error(), "uses the table of epoch 1, but the current one is 2") {
		t.Errorf("by an API server that is blind: %v", err)
	}
}

// A thousand members, some without a Pod: the table is abbreviated, and what stands for none admits nobody.
func TestLargeTable(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	a := s.pod("web-0")
	var members []table.Member
	for i := range 999 {
		m := table.Member{ID: fmt.Sprintf("web-7d9f8b6c5d-%05d-k3j9x", i), Build: "v7", Weight: 1, MinFormat: 1, MaxFormat: 1, Joined: 1763712000}
		m.Pod, m.PodUID = m.ID[:len(m.ID)-6], fmt.Sprintf("0c2f91ab-7a4e-4b53-9d0c-%012d", i)
		if i%10 == 0 {
			m.PodUID = ""
		}
		members = append(members, m)
	}
	last := table.Member{ID: "web-z-k3j9x", Pod: "web-z", PodUID: string(a.UID), Weight: 1, MinFormat: 1, MaxFormat: 1}
	s.write(append(slices.Clone(members), last))
	s.install()
	asA := kubernetes.NewForConfigOrDie(s.as(a)).CoreV1().ConfigMaps(s.namespace)
	if _, err := asA.Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Errorf("the last of 1,000 members: %v", err)
	}
	s.write(members)
	require.Eventually(t, 30*time.Second, func() error {
		_, err := asA.Create(t.Context(), configMap("a"), dryRun)
		if !refused(err) {
			return errors.Join(errors.New("not refused after it was expelled"), err)
		}
		return nil
	})
}

func contains(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}
