package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// TestSurvivesSharding: Websites become what they become with one replica, whatever happens to two.
func TestSurvivesSharding(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("takes a minute: make check WHAT=slow")
	}
	ctrl.SetLogger(logr.Discard())
	plane := controlplane.For(t) // others use envtest
	require.NoError(t, plane.InstallCRDs(t.Context(), config.CRD))
	scheme := runtime.NewScheme()
	check(clientgoscheme.AddToScheme(scheme))
	check(webv1.AddToScheme(scheme))
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "sharding", Name: name} }
	objects := []client.Object{&corev1.Secret{ObjectMeta: named("certificate"), Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: []byte("a"), corev1.TLSPrivateKeyKey: []byte("b")}}}
	for i := range 8 {
		site := &webv1.Website{ObjectMeta: named(fmt.Sprintf("site-%d", i)), Spec: webv1.WebsiteSpec{
			Title: "Title", Content: fmt.Sprint(i), Protected: i%2 == 0}}
		if i%3 == 0 {
			site.Spec.SecretName = "certificate"
		}
		objects = append(objects, site)
	}
	pages := t.TempDir()
	rotatest.Run(t, rotatest.Options{
		Config:  plane.Config(),
		Scheme:  scheme,
		Setup:   func(mgr *ctrlrt.Manager) error { return setUp(t.Context(), mgr, pages) },
		Objects: objects,
		Change: func(ctx context.Context, c client.Client) error {
			for i := range 4 {
				site := &webv1.Website{ObjectMeta: named(fmt.Sprintf("site-%d", i))}
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"content":"changed","protected":true}}`))
				if err := c.Patch(ctx, site, patch); err != nil {
					return err
				}
			}
			return c.Delete(ctx, &corev1.Secret{ObjectMeta: named("certificate")})
		},
	})
}
