package incidents_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/go-logr/logr"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// A side is a way to run the operator.
type side struct {
	name  string
	stock bool
	is    func(*rig.Operator)
}

func sides() []side {
	return []side{
		{"stock", true, func(o *rig.Operator) { o.Stock, o.Election = true, "leader" }},
		{"Filter", false, func(*rig.Operator) {}},
		{"SlotLabel", false, func(o *rig.Operator) { o.Delivery = sharding.SlotLabel }},
	}
}

// A circumstance is what a cluster does to an operator. What stock survives, Rota survives: each side has to reconcile
// what users change meanwhile.
type circumstance struct {
	name string
	// whole has a cluster of its own: it concerns others, too.
	whole  bool
	begins func(*night)
	// meanwhile happens to the replicas after users have changed Websites.
	meanwhile func(*night)
	// ends ends it. With blocked, no side can do its work before that.
	ends    func(*night)
	blocked bool
}

// changed is how many Websites users change in each circumstance.
const changed = 8

func circumstances() []circumstance {
	return []circumstance{{
		name:   "a webhook takes two seconds",
		begins: func(n *night) { n.webhook(n.server(allow(2*time.Second)), admissionv1.Fail) },
	}, {
		// Each write takes two thirds of a lease, which is what 10 s are by default.
		name:   "a webhook that may be ignored does not answer",
		begins: func(n *night) { n.webhook(n.server(allow(time.Hour)), admissionv1.Ignore) },
	}, {
		name:    "a webhook does not answer",
		begins:  func(n *night) { n.webhook(n.server(allow(time.Hour)), admissionv1.Fail) },
		blocked: true,
		ends: func(n *night) {
			n.delete(&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: n.namespace}})
		},
	}, {
		name: "a policy refuses changes of some objects, such as labels",
		begins: func(n *night) {
			n.refuse()
			for i := range changed {
				n.create(fmt.Sprintf("new-%d", i), frozen)
			}
		},
	}, {
		name: "requests are refused now and then",
		begins: func(n *night) {
			n.faults(proxy.Faults{Answers: []proxy.Answer{{Code: 500, Share: 0.1}, {Code: 429, Share: 0.1}}})
		},
	}, {
		// A renewal has 1 s before Rota gives it more, and 1.7 s then, as with stock leader election.
		name:   "answers come after more than a second",
		begins: func(n *night) { n.faults(proxy.Faults{AnswerDelay: 1200 * time.Millisecond}) },
		meanwhile: func(n *night) {
			n.start(nil)
			time.Sleep(2 * *lease) // who cannot renew has lapsed by then
		},
	}, {
		name:   "watches break within events",
		begins: func(n *night) { n.faults(proxy.Faults{TearWatches: time.Second}) },
	}, {
		name:    "answers get lost for a while",
		begins:  func(n *night) { n.faults(proxy.Faults{SwallowResponses: true}) },
		blocked: true,
		ends:    func(n *night) { n.faults(proxy.Faults{}) },
	}, {
		name:      "bookmarks never arrive, and replicas come and go",
		begins:    func(n *night) { n.faults(proxy.Faults{DropBookmarks: true}) },
		meanwhile: func(n *night) { n.start(nil); n.leave("web-2") },
	}, {
		name:  "the API server stands still, and a replica is killed",
		whole: true,
		begins: func(n *night) {
			server := n.plane.PID("apiserver-0")
			for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				if err := syscall.Kill(server, s); err != nil {
					n.t.Fatal(err)
				}
				if s == syscall.SIGSTOP {
					time.Sleep(2 * *lease)
				}
			}
		},
		meanwhile: func(n *night) { n.kill("web-1") },
	}, {
		name:  "the API server starts again, and a replica is killed",
		whole: true,
		begins: func(n *night) {
			n.ok(n.plane.KillServer("apiserver-0"))
			n.ok(n.plane.StartServer("apiserver-0"))
		},
		meanwhile: func(n *night) { n.kill("web-1") },
	}, {
		name:      "an object cannot be converted, and a replica is killed",
		whole:     true,
		begins:    func(n *night) { n.convert(); n.change("site-0", unconvertible) },
		meanwhile: func(n *night) { n.kill("web-1") },
		blocked:   true,
		ends:      func(n *night) { n.converts.Store(true) },
	}}
}

func TestHostile(t *testing.T) {
	var mu sync.Mutex
	took := map[string]time.Duration{}
	t.Run("all", func(t *testing.T) {
		for _, c := range circumstances() {
			for _, s := range sides() {
				t.Run(strings.ReplaceAll(c.name+"/"+s.name, " ", "-"), func(t *testing.T) {
					t.Parallel()
					plane := controlplane.For(t)
					if c.whole {
						plane = controlplane.New(t, controlplane.Options{})
					}
					d := c.run(newNight(t, plane, s.is), s)
					mu.Lock()
					defer mu.Unlock()
					took[c.name+s.name] = d
				})
			}
		}
	})
	var table strings.Builder // for docs/verification.md
	for _, c := range circumstances() {
		fmt.Fprintf(&table, "\n| %s |", c.name)
		for _, s := range sides() {
			fmt.Fprintf(&table, " %.0f s |", took[c.name+s.name].Seconds())
		}
	}
	t.Log(table.String())
}

// run returns how long it was until all was well.
func (c *circumstance) run(n *night, s side) time.Duration {
	if !s.stock {
		n.until("the tools say that all is well", n.ill)
	}
	begun := time.Now()
	c.begins(n)
	n.changeSome("Good evening")
	if c.meanwhile != nil {
		c.meanwhile(n)
		n.changeSome("Good night")
	}
	if c.ends != nil {
		if !c.blocked {
			n.until("all is well in it", n.wrong)
		}
		c.ends(n)
	}
	n.until("all is well", n.wrong)
	return time.Since(begun)
}

func (n *night) changeSome(title string) {
	for i := range changed {
		n.change(fmt.Sprintf("site-%d", i+1), title)
	}
}

// leave ends a replica with SIGTERM.
func (n *night) leave(pod string) {
	r := n.pod(pod)
	n.ok(r.Leave())
	<-r.Process().Done() // go test ends one that does not
}

func (n *night) ok(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// server serves what the API server asks, with TLS on loopback.
func (n *night) server(h http.Handler) *httptest.Server {
	s := httptest.NewTLSServer(h)
	n.t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// allow allows what it is asked about, after a time.
func allow(after time.Duration) http.Handler {
	return &admission.Webhook{
		Handler: admission.HandlerFunc(func(ctx context.Context, _ admission.Request) admission.Response {
			_ = await.Sleep(ctx, after)
			return admission.Allowed("")
		}),
		LogConstructor: func(logr.Logger, *admission.Request) logr.Logger { return logr.Discard() },
	}
}

// webhook has the API server ask s about all writes to the Websites of this night, for up to two thirds of a lease.
func (n *night) webhook(s *httptest.Server, policy admissionv1.FailurePolicyType) {
	n.t.Helper()
	n.ok(n.client.Create(n.t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: n.namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:              "slow.web.example.com",
			ClientConfig:      admissionv1.WebhookClientConfig{URL: &s.URL, CABundle: certificate(s)},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: n.namespace}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule: admissionv1.Rule{
					APIGroups: []string{webv1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"websites/status"},
				},
			}},
			FailurePolicy: &policy, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To(int32(lease.Seconds() * 2 / 3)), AdmissionReviewVersions: []string{"v1"},
		}},
	}))
}

// frozen is the title of Websites that nobody may change.
const frozen = "frozen"

// refuse has the API server refuse changes of frozen Websites, but for their status.
func (n *night) refuse() {
	n.t.Helper()
	meta := metav1.ObjectMeta{Name: n.namespace}
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: n.namespace}}
	n.ok(n.client.Create(n.t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: here,
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{webv1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"websites"},
					},
				}}},
			},
			Validations: []admissionv1.Validation{{
				Expression: "oldObject.spec.title != '" + frozen + "'", Message: "it is frozen",
			}},
		},
	}))
	n.ok(n.client.Create(n.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}))
	n.create("probe", frozen)
	n.until("the policy is known", func() string {
		probe := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "probe"}}
		label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"probe":"x"}}}`))
		if err := n.client.Patch(n.t.Context(), probe, label); err == nil {
			return "it lets changes pass"
		}
		return ""
	})
}

const (
	// stored is the version that Websites are stored in after convert.
	stored = "v2"
	// unconvertible is a title that cannot be converted until night.converts is true.
	unconvertible = "unconvertible"
)

// convert has Websites stored in another version from now on, and converts what replicas read.
func (n *night) convert() {
	n.t.Helper()
	s := n.server(http.HandlerFunc(n.conversion))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	n.ok(n.client.Get(n.t.Context(), client.ObjectKey{Name: "websites." + webv1.GroupVersion.Group}, crd))
	next := crd.Spec.Versions[0].DeepCopy()
	next.Name, crd.Spec.Versions[0].Storage = stored, false
	crd.Spec.Versions = append(crd.Spec.Versions, *next)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &s.URL, CABundle: certificate(s)},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	n.ok(n.client.Update(n.t.Context(), crd))
	n.version = stored
	n.until("the other version is served", n.wrong)
}

// conversion implements http.Handler for conversions.
func (n *night) conversion(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{
		UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess},
	}
	for _, raw := range review.Request.Objects {
		var site unstructured.Unstructured
		if err := site.UnmarshalJSON(raw.Raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		title, _, _ := unstructured.NestedString(site.Object, "spec", "title")
		if title == unconvertible && !n.converts.Load() {
			review.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: "this title cannot be converted"}
			break
		}
		site.SetAPIVersion(review.Request.DesiredAPIVersion)
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: &site})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // an API server that is gone needs no answer
}
