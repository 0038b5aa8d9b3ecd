package access_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}) }

const audience = "rota.dev/dispatch"

var configMap = schema.GroupKind{Kind: "ConfigMap"}

// cluster has a ServiceAccount for workers, and a Guard with the permissions that a dispatcher has.
type cluster struct {
	*kubernetes.Clientset
	t         *testing.T
	namespace string
	guard     *access.Guard
	config    *rest.Config // of the dispatcher
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	plane := controlplane.For(t)
	c := &cluster{t: t, namespace: controlplane.Namespace(t)}
	var err error
	if c.Clientset, err = kubernetes.NewForConfig(plane.Config()); err != nil {
		t.Fatal(err)
	}
	plane.MakeAccount(t, c.namespace, "worker")
	if c.config, err = plane.UserConfig("dispatcher-of-" + c.namespace); err != nil {
		t.Fatal(err)
	}
	plane.Grant(t, "", "dispatcher-of-"+c.namespace, controlplane.User("dispatcher-of-"+c.namespace), rbacv1.PolicyRule{
		APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"},
	}, rbacv1.PolicyRule{
		APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"},
	})
	if c.guard, err = access.New(c.config, access.Options{Audience: audience, Logger: logr.Discard()}); err != nil {
		t.Fatal(err)
	}
	return c
}

// token returns a token of the worker's ServiceAccount for audiences.
func (c *cluster) token(audiences ...string) string {
	c.t.Helper()
	return controlplane.For(c.t).Token(c.t, c.namespace, "worker", audiences...)
}

func (c *cluster) authenticate(token string) (access.User, error) {
	r := httptest.NewRequestWithContext(c.t.Context(), "POST", wire.PathTake, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return c.guard.Authenticate(r)
}

func wants(t *testing.T, err error, problem string, texts ...string) {
	t.Helper()
	var refused *access.Error
	if !errors.As(err, &refused) || refused.Problem != problem {
		t.Errorf("error %v, want %s", err, problem)
		return
	}
	for _, text := range texts {
		if !strings.Contains(refused.Detail, text) {
			t.Errorf("detail %q lacks %q", refused.Detail, text)
		}
	}
}

func TestTokens(t *testing.T) {
	c := newCluster(t)
	account, err := c.CoreV1().ServiceAccounts(c.namespace).Get(t.Context(), "worker", metav1.GetOptions{})
	require.NoError(t, err)
	user, err := c.authenticate(c.token(audience))
	if want := "system:serviceaccount:" + c.namespace + ":worker"; err != nil || user.Name != want ||
		user.UID != string(account.UID) || len(user.Groups) == 0 {
		t.Errorf("user %+v, error %v, want %s", user, err, want)
	}
	if _, err := c.authenticate(c.token("https://kubernetes.default.svc", audience)); err != nil {
		t.Errorf("a token for two audiences: %v", err)
	}
	_, err = c.authenticate(c.token("https://kubernetes.default.svc"))
	wants(t, err, wire.ProblemUnauthenticated, audience)
	_, err = c.authenticate(c.token()) // for the API server
	wants(t, err, wire.ProblemUnauthenticated, audience)
	_, err = c.authenticate("nonsense")
	wants(t, err, wire.ProblemUnauthenticated, audience)
	left, other := c.token(audience), c.token(audience)
	require.NoError(t, c.CoreV1().ServiceAccounts(c.namespace).Delete(t.Context(), "worker", metav1.DeleteOptions{}))
	// The API server takes accounts from a watch, and remembers for 10 s whom it let in.
	if err := await.Until(t.Context(), 50*time.Millisecond, 3*time.Minute, func() string {
		review, err := c.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: other, Audiences: []string{audience}},
		}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return err.Error()
		case review.Status.Authenticated:
			return "the token of a deleted account is still accepted"
		}
		return ""
	}); err != nil {
		t.Fatal(err)
	}
	_, err = c.authenticate(left)
	wants(t, err, wire.ProblemUnauthenticated, audience)
}

func TestPermissions(t *testing.T) {
	c := newCluster(t)
	user, err := c.authenticate(c.token(audience))
	require.NoError(t, err)
	may := func(namespaces ...string) error { return c.guard.Authorize(t.Context(), user, configMap, namespaces) }
	wants(t, may(c.namespace), wire.ProblemForbidden, user.Name+" may not take configmaps in namespace "+c.namespace,
		`resources: ["configmaps"]`, `verbs: ["take"]`, "Role there")
	wants(t, may(), wire.ProblemForbidden, "may not take configmaps in the cluster", "ClusterRole")
	// The rule of the message is what it takes.
	var refused *access.Error
	if !errors.As(may(c.namespace), &refused) {
		t.Fatal("no refusal")
	}
	_, text, _ := strings.Cut(refused.Detail, "\n")
	var rules []rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict([]byte(text), &rules); err != nil || len(rules) != 1 {
		t.Fatalf("rules %v of %q: %v", rules, text, err)
	}
	controlplane.For(t).Grant(t, c.namespace, "worker", controlplane.Account(c.namespace, "worker"), rules...)
	err = await.Until(t.Context(), 100*time.Millisecond, 20*time.Second, func() string {
		if err := may(c.namespace); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		t.Error(err)
	}
	wants(t, may(c.namespace, "default"), wire.ProblemForbidden, "in namespace default")
	wants(t, may(), wire.ProblemForbidden)
	secrets := schema.GroupKind{Kind: "Secret"}
	wants(t, c.guard.Authorize(t.Context(), user, secrets, []string{c.namespace}), wire.ProblemForbidden, "secrets")
	missing := schema.GroupKind{Group: "demo.example.com", Kind: "Missing"}
	wants(t, c.guard.Authorize(t.Context(), user, missing, nil), wire.ProblemUnavailable, "Missing.demo.example.com",
		"CustomResourceDefinition")
}

// A dispatcher that may not ask refuses everybody, and does not say that their tokens are wrong.
func TestGuardWithoutPermissions(t *testing.T) {
	c := newCluster(t)
	user, err := c.authenticate(c.token(audience))
	require.NoError(t, err)
	config, err := controlplane.For(t).UserConfig("nobody-of-" + c.namespace)
	require.NoError(t, err)
	var logged []string
	logger := funcr.New(func(_, text string) { logged = append(logged, text) }, funcr.Options{})
	if c.guard, err = access.New(config, access.Options{Audience: audience, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	_, err = c.authenticate(c.token(audience))
	wants(t, err, wire.ProblemUnavailable, "cannot be asked")
	wants(t, c.guard.Authorize(t.Context(), user, configMap, nil), wire.ProblemUnavailable, "cannot be asked")
	if text := strings.Join(logged, "\n"); !strings.Contains(text, "nobody-of-"+c.namespace+" may not create "+
		"tokenreviews.authentication.k8s.io in the cluster; add this to the rules of its ClusterRole") {
		t.Errorf("the log does not say what is missing:\n%s", text)
	}
	if self, err := c.guard.Self(t.Context()); err != nil || self != "nobody-of-"+c.namespace {
		t.Errorf("self %q, error %v", self, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.guard.Self(ctx); err == nil {
		t.Error("no error although the request was canceled")
	}
}
