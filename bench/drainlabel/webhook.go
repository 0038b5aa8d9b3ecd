package drainlabel

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// decode reads the metadata of an object.
func decode(raw []byte, into *metav1.PartialObjectMetadata) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read the object's metadata: %w", err)
	}
	return nil
}

// labelled answers with a patch that adds a label.
func labelled(obj *metav1.PartialObjectMetadata, label, value string) admission.Response {
	if obj.Labels == nil {
		return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{label: value}))
	}
	path := "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1") // RFC 6901
	return admission.Patched("", jsonpatch.NewOperation("add", path, value))
}

// Server returns a webhook server on loopback with a certificate of its own, and the certificate.
func Server(port int) (webhook.Server, []byte, error) {
	address := net.IPv4(127, 0, 0, 1)
	cert, key, err := certutil.GenerateSelfSignedCertKey(address.String(), []net.IP{address}, nil)
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, nil, err
	}
	return webhook.NewServer(webhook.Options{
		Host: address.String(), Port: port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		}},
	}), cert, nil
}

// Install has the API server ask the webhook at a port of loopback about objects without a shard.
func (s *Sharder) Install(ctx context.Context, c client.Client, port int, certificate []byte) error {
	config := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.Ring + ".bench.rota.dev"}}
	hook := admissionv1.MutatingWebhook{
		Name: "sharder.bench.rota.dev",
		ClientConfig: admissionv1.WebhookClientConfig{
			URL: ptr.To(fmt.Sprintf("https://127.0.0.1:%d%s", port, Path)), CABundle: certificate,
		},
		ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: ShardLabel(s.Ring), Operator: metav1.LabelSelectorOpDoesNotExist},
		}},
		FailurePolicy: ptr.To(admissionv1.Ignore), TimeoutSeconds: ptr.To(int32(5)),
		SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}
	for _, kind := range append([]schema.GroupVersionKind{s.Main}, s.Children...) {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		hook.Rules = append(hook.Rules, admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{kind.Group}, APIVersions: []string{"*"}, Resources: []string{strings.ToLower(plural.Resource)},
			},
		})
	}
	config.Webhooks = []admissionv1.MutatingWebhook{hook}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, config)); err != nil {
		return fmt.Errorf("install the sharder's webhook: %w", err)
	}
	return nil
}

// Uninstall has the API server ask no more.
func (s *Sharder) Uninstall(ctx context.Context, c client.Client) error {
	config := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.Ring + ".bench.rota.dev"}}
	return client.IgnoreNotFound(c.Delete(ctx, config))
}
