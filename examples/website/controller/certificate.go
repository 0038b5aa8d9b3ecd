package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
)

// secretField is the index of Websites by their Secret.
const secretField = ".spec.secretName"

// Index makes the field index that SitesOf needs.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &webv1.Website{}, secretField, func(obj client.Object) []string {
		if site, ok := obj.(*webv1.Website); ok && site.Spec.SecretName != "" {
			return []string{site.Spec.SecretName}
		}
		return nil
	})
}

// SitesOf returns requests for the Websites that use a Secret, for handler.EnqueueRequestsFromMapFunc.
func (r *WebsiteReconciler) SitesOf(ctx context.Context, secret client.Object) []ctrl.Request {
	var sites webv1.WebsiteList
	err := r.List(ctx, &sites,
		client.InNamespace(secret.GetNamespace()), client.MatchingFields{secretField: secret.GetName()})
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot tell whose Secret it is", "secret", client.ObjectKeyFromObject(secret))
		return nil
	}
	requests := make([]ctrl.Request, len(sites.Items))
	for i := range sites.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&sites.Items[i])
	}
	return requests
}

// certificate is the state of the certificate in the Website's Secret.
type certificate struct {
	// checksum changes whenever the certificate or its key does; "" without spec.secretName.
	checksum string
	// missing says what is missing, or is "".
	missing string
}

// certificate reads the Website's Secret. A missing Secret is not an error: the reconcile would be retried again and
// again, although the event of the Secret's creation triggers one anyway.
func (r *WebsiteReconciler) certificate(ctx context.Context, site *webv1.Website) (certificate, error) {
	if site.Spec.SecretName == "" {
		return certificate{}, nil
	}
	var secret corev1.Secret
	err := r.Get(ctx, client.ObjectKey{Namespace: site.Namespace, Name: site.Spec.SecretName}, &secret)
	if apierrors.IsNotFound(err) {
		return certificate{missing: fmt.Sprintf("There is no Secret %s.", site.Spec.SecretName)}, nil
	}
	if err != nil {
		return certificate{}, fmt.Errorf("get secret %s: %w", site.Spec.SecretName, err)
	}
	sum := Checksum(&secret)
	if sum == "" {
		missing := fmt.Sprintf("Secret %s lacks %s or %s.", secret.Name, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
		return certificate{missing: missing}, nil
	}
	return certificate{checksum: sum}, nil
}

// Checksum returns what CertificateAnnotation is with this Secret; "" without a certificate and its key.
func Checksum(secret *corev1.Secret) string {
	crt, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if len(crt) == 0 || len(key) == 0 {
		return ""
	}
	return checksum(fmt.Appendf(nil, "%d %s%s", len(crt), crt, key))
}

// setCondition has the condition on Websites with spec.secretName, and only on those.
func (c certificate) setCondition(site *webv1.Website) {
	if site.Spec.SecretName == "" {
		meta.RemoveStatusCondition(&site.Status.Conditions, webv1.ConditionCertificateFound)
		return
	}
	condition := metav1.Condition{
		Type: webv1.ConditionCertificateFound, Status: metav1.ConditionTrue, Reason: "Found",
		Message: "The page is served with the certificate of the Secret.", ObservedGeneration: site.Generation,
	}
	if c.missing != "" {
		condition.Status, condition.Reason = metav1.ConditionFalse, "Missing"
		condition.Message = c.missing + " Deployment and Service stay as they are until it is there."
	}
	meta.SetStatusCondition(&site.Status.Conditions, condition)
}
