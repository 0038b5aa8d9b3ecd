package controlplane

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "v"}}
}

func TestReadyWithinAMinute(t *testing.T) {
	took := For(t).StartTime()
	t.Logf("ready after %s", took) // 3 s with nothing beside it
	if took <= 0 || took > time.Minute {
		t.Errorf("ready after %s, want at most a minute", took)
	}
}

func TestKubectl(t *testing.T) {
	c := For(t)
	ns := Namespace(t)
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "Server Version: v1.36."},
		{[]string{"get", "namespaces", "-o", "name"}, "namespace/" + ns},
		{[]string{"-n", ns, "create", "configmap", "hello", "--from-literal=a=b"}, "configmap/hello created"},
		{[]string{"-n", ns, "get", "configmap", "hello", "-o", "jsonpath={.data.a}"}, "b"},
		{[]string{"get", "configmaps"}, "No resources found in default namespace"},
	} {
		out, err := kubectl(t, c.Kubeconfig(), step.args...)
		if err != nil || !strings.Contains(out, step.want) {
			t.Errorf("kubectl %q: %v\n%s\nwant %q in it", step.args, err, out, step.want)
		}
	}
}

func TestUserIsSubjectToRBAC(t *testing.T) {
	c := For(t)
	ns := Namespace(t)
	config, err := c.UserConfig("jane", "readers")
	if err != nil {
		t.Fatal(err)
	}
	jane := clientset(t, config).CoreV1().ConfigMaps(ns)
	if _, err := jane.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list without a role: %v, want Forbidden", err)
	}
	rbac := clientset(t, c.Config()).RbacV1()
	if _, err := rbac.Roles(ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "readers"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The API server learns of roles through a watch.
	eventually(t, 10*time.Second, func() error {
		_, err := jane.List(t.Context(), metav1.ListOptions{})
		return err
	})
	if _, err := jane.Create(t.Context(), configMap("no"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create with a role to list: %v, want Forbidden", err)
	}
}

func TestWriteUserKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := For(t).WriteUserKubeconfig(path, "joe", "team-a"); err != nil {
		t.Fatal(err)
	}
	out, err := kubectl(t, path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
	if want := `joe ["team-a","system:authenticated"]`; err != nil || out != want {
		t.Errorf("kubectl auth whoami: %v: %s, want %s", err, out, want)
	}
}

// TestTokenBoundToPod: what a fence needs. Pods exist without a kubelet, and a token bound to one says so to admission.
func TestTokenBoundToPod(t *testing.T) {
	c := For(t)
	ns := Namespace(t)
	client := clientset(t, c.Config()).CoreV1()
	if _, err := client.ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sa"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := client.Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{ServiceAccountName: "sa", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	if request, err = client.ServiceAccounts(ns).CreateToken(t.Context(), "sa", request, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = request.Status.Token
	review, err := clientset(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := review.Status.UserInfo.Extra["authentication.kubernetes.io/pod-uid"]
	if len(got) != 1 || got[0] != string(pod.UID) {
		t.Errorf("pod-uid of the token is %q, want %q", got, pod.UID)
	}
}

func TestShardSelectorFilters(t *testing.T) {
	c := For(t)
	client, namespace := clientset(t, c.Config()).CoreV1(), Namespace(t)
	maps := client.ConfigMaps(namespace)
	const n = 30
	for i := range n {
		if _, err := maps.Create(t.Context(), configMap(fmt.Sprintf("c%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for _, half := range []string{
		"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
	} {
		var list corev1.ConfigMapList
		if err := client.RESTClient().Get().Namespace(namespace).Resource("configmaps").Param("shardSelector", half).
			Do(t.Context()).Into(&list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == 0 || len(list.Items) == n {
			t.Errorf("%s selects %d of %d: not filtered", half, len(list.Items), n)
		}
		for _, item := range list.Items {
			seen[item.Name]++
		}
	}
	if len(seen) != n {
		t.Errorf("two halves have %d objects, want %d", len(seen), n)
	}
}
