package check

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/test/require"
)

// A webhook that the operator's own Pods serve must be there before one of them is ready, if a member waits for it.
func TestWebhooksThatWaitForThemselves(t *testing.T) {
	website := schema.GroupVersionKind{Group: "web.example.com", Version: "v1", Kind: "Website"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{website.GroupVersion()})
	mapper.Add(website, meta.RESTScopeNamespace)
	const conversion = "the conversion webhook of websites.web.example.com"
	const leases = "webhook policy.example.com of ValidatingWebhookConfiguration policy, which is called for leases"
	for name, c := range map[string]struct {
		change func(w *webhookWorld)
		want   []string // empty: nothing is told
	}{
		"both":              {func(*webhookWorld) {}, []string{"failed WebhookWaits", "Service ns/hooks", conversion + ", " + leases, "kubectl patch service -n ns hooks"}},
		"published":         {func(w *webhookWorld) { w.service.Spec.PublishNotReadyAddresses = true }, nil},
		"no Service":        {func(w *webhookWorld) { w.service = nil }, nil},
		"Service of others": {func(w *webhookWorld) { w.deployment.Spec.Template.Spec.ServiceAccountName = "other" }, nil},
		"a Pod without Deployment": {func(w *webhookWorld) {
			w.deployment, w.pod.Spec.ServiceAccountName = &appsv1.Deployment{}, "operator"
		}, []string{conversion}},
		"another namespace": {func(w *webhookWorld) { w.hook.ClientConfig.Service.Namespace, w.strategy = "away", "None" }, nil},
		"one version":       {func(w *webhookWorld) { w.versions = w.versions[:1] }, []string{"serves " + leases}},
		"webhooks apart from members": {func(w *webhookWorld) {
			members := appsv1.Deployment{}
			members.Spec.Template.Spec.ServiceAccountName = "operator"
			w.others = append(w.others, members)
		}, []string{"warning WebhookWaits", "if these are members"}},
		"no conversion":         {func(w *webhookWorld) { w.strategy = "None" }, []string{"serves " + leases}},
		"fails open":            {func(w *webhookWorld) { w.hook.FailurePolicy = ptr.To(admissionv1.Ignore) }, []string{"serves " + conversion + "."}},
		"with conditions":       {func(w *webhookWorld) { w.hook.MatchConditions = make([]admissionv1.MatchCondition, 1) }, []string{"serves " + conversion + "."}},
		"deletions only":        {func(w *webhookWorld) { w.hook.Rules[0].Operations = []admissionv1.OperationType{admissionv1.Delete} }, []string{"serves " + conversion + "."}},
		"without the namespace": {func(w *webhookWorld) { w.hook.NamespaceSelector = notIn("ns") }, []string{"serves " + conversion + "."}},
		"without others":        {func(w *webhookWorld) { w.hook.NamespaceSelector = notIn("away") }, []string{leases}},
		"everything": {func(w *webhookWorld) {
			w.hook.Rules[0].Rule = admissionv1.Rule{APIGroups: []string{"*"}, Resources: []string{"*"}}
		},
			[]string{"called for configmaps and leases"}},
	} {
		w := newWebhookWorld()
		c.change(w)
		server := httptest.NewServer(w)
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
			ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
		require.NoError(t, err)
		r := &run{client: client, mapper: mapper, lines: map[string][]Line{}, Options: Options{
			Rota: types.NamespacedName{Namespace: "ns", Name: "web"}, Account: types.NamespacedName{Namespace: "ns", Name: "operator"},
			Kinds: []schema.GroupKind{website.GroupKind()},
		}}
		r.webhooks(t.Context(), func() ([]admission, error) { return r.admissionWebhooks(t.Context()) })
		server.Close()
		got := told(r, groupCluster)
		if len(c.want) == 0 && got != "" {
			t.Errorf("%s: %s", name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in %s", name, want, got)
			}
		}
	}
}

// A webhook that may take longer than a member's writes is named, if it is asked about the rota's kinds.
func TestSlowWebhooks(t *testing.T) {
	website := schema.GroupVersionKind{Group: "web.example.com", Version: "v1", Kind: "Website"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{website.GroupVersion()})
	mapper.Add(website, meta.RESTScopeNamespace)
	for _, c := range []struct {
		group   string
		seconds *int32
		want    bool
	}{
		{"web.example.com", nil, false},
		{"web.example.com", ptr.To[int32](10), false},
		{"web.example.com", ptr.To[int32](30), true},
		{"*", ptr.To[int32](11), true},
		{"other.example.com", ptr.To[int32](30), false},
	} {
		w := newWebhookWorld()
		w.hook.TimeoutSeconds = c.seconds
		w.hook.Rules[0].Rule = admissionv1.Rule{APIGroups: []string{c.group}, Resources: []string{"*"}}
		server := httptest.NewServer(w)
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
			ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
		require.NoError(t, err)
		r := &run{client: client, mapper: mapper, lines: map[string][]Line{},
			Options: Options{Kinds: []schema.GroupKind{website.GroupKind()}}}
		r.slowWebhooks(func() ([]admission, error) { return r.admissionWebhooks(t.Context()) })
		server.Close()
		got := told(r, groupCluster)
		if named := strings.Contains(got, "webhook policy.example.com of ValidatingWebhookConfiguration policy"); named != c.want {
			t.Errorf("%s, %v s: %q", c.group, ptr.Deref(c.seconds, 0), got)
		}
	}
}

func notIn(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{namespace},
	}}}
}

// webhookWorld is an API server with one Service, by which a conversion and an admission webhook are reached.
type webhookWorld struct {
	service    *corev1.Service
	deployment *appsv1.Deployment
	pod        *corev1.Pod
	hook       admissionv1.ValidatingWebhook
	strategy   string
	versions   []map[string]any
	others     []appsv1.Deployment
}

func newWebhookWorld() *webhookWorld {
	app := map[string]string{"app": "web"}
	w := &webhookWorld{
		service: &corev1.Service{Spec: corev1.ServiceSpec{Selector: app}}, deployment: &appsv1.Deployment{}, pod: &corev1.Pod{},
		strategy: "Webhook", versions: []map[string]any{{"name": "v1"}, {"name": "v2"}},
		hook: admissionv1.ValidatingWebhook{
			Name:         "policy.example.com",
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "hooks"}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}},
			}},
		},
	}
	w.deployment.Spec.Template.Labels = app
	w.deployment.Spec.Template.Spec.ServiceAccountName = "operator"
	return w
}

func (w *webhookWorld) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	out.Header().Set("Content-Type", "application/json")
	var answer any
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, "/customresourcedefinitions/websites.web.example.com"):
		service := map[string]any{"namespace": "ns", "name": "hooks"}
		answer = map[string]any{"spec": map[string]any{"versions": w.versions, "conversion": map[string]any{"strategy": w.strategy,
			"webhook": map[string]any{"clientConfig": map[string]any{"service": service}}}}}
	case strings.HasSuffix(path, "/services/hooks") && w.service != nil:
		answer = w.service
	case strings.HasSuffix(path, "/deployments"):
		answer = appsv1.DeploymentList{Items: append(slices.Clone(w.others), *w.deployment)}
	case strings.HasSuffix(path, "/pods"):
		answer = corev1.PodList{Items: []corev1.Pod{*w.pod}}
	case strings.HasSuffix(path, "/validatingwebhookconfigurations"):
		answer = admissionv1.ValidatingWebhookConfigurationList{Items: []admissionv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Webhooks: []admissionv1.ValidatingWebhook{w.hook},
		}}}
	case strings.HasSuffix(path, "/mutatingwebhookconfigurations"):
		answer = admissionv1.MutatingWebhookConfigurationList{}
	case strings.HasSuffix(path, "/namespaces/ns"):
		answer = corev1.Namespace{}
	default:
		out.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	}
	_ = json.NewEncoder(out).Encode(answer)
}
