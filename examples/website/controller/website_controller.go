// Package controller reconciles Websites. Nothing in it knows of Rota.
package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
)

// WebsiteReconciler publishes Websites: each as a file outside Kubernetes, and as a ConfigMap that it owns.
type WebsiteReconciler struct {
	// Client reads Websites from the cache and ConfigMaps from the API server (Uncached), and writes both.
	client.Client
	Recorder events.EventRecorder
	Pages    Pages
}

// Uncached are the kinds that the reconciler reads from the API server, for client.CacheOptions.DisableFor.
func Uncached() []client.Object { return []client.Object{&corev1.ConfigMap{}} }

// conflictDelay is how long to wait for the cache to catch up with whoever wrote the object meanwhile.
const conflictDelay = 200 * time.Millisecond

// +kubebuilder:rbac:groups=web.example.com,resources=websites,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=web.example.com,resources=websites/status;websites/finalizers,verbs=get;update;patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings what is published in line with the Website of that name. It is level-triggered: it may run any
// number of times for one change, and writes only what differs.
func (r *WebsiteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site webv1.Website
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("get website %s: %w", req, err)
		}
		// Only a Website without the finalizer is gone by now. The garbage collector takes the ConfigMap.
		return ctrl.Result{}, r.Pages.Withdraw(req.NamespacedName)
	}
	err := r.reconcile(ctx, &site)
	if apierrors.IsConflict(err) {
		// The cache was behind; there is nothing wrong that anybody would want to read about.
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err) // deleted meanwhile: that event comes by itself
}

func (r *WebsiteReconciler) reconcile(ctx context.Context, site *webv1.Website) error {
	if !site.DeletionTimestamp.IsZero() {
		return r.finalize(ctx, site)
	}
	if err := r.protect(ctx, site); err != nil {
		return err
	}
	page := render(site)
	if err := r.Pages.Publish(client.ObjectKeyFromObject(site), page); err != nil {
		return err
	}
	if err := r.writeConfigMap(ctx, site, page); err != nil {
		return err
	}
	return r.writeStatus(ctx, site, page)
}

// finalize withdraws a Website that is being deleted, and lets it go.
func (r *WebsiteReconciler) finalize(ctx context.Context, site *webv1.Website) error {
	if !controllerutil.ContainsFinalizer(site, webv1.Finalizer) {
		return nil
	}
	if err := r.Pages.Withdraw(client.ObjectKeyFromObject(site)); err != nil {
		return err
	}
	return r.patch(ctx, site, func() { controllerutil.RemoveFinalizer(site, webv1.Finalizer) })
}

// protect has the finalizer on protected Websites, and only on those. It comes before anything is published.
func (r *WebsiteReconciler) protect(ctx context.Context, site *webv1.Website) error {
	switch has := controllerutil.ContainsFinalizer(site, webv1.Finalizer); {
	case site.Spec.Protected && !has:
		return r.patch(ctx, site, func() { controllerutil.AddFinalizer(site, webv1.Finalizer) })
	case !site.Spec.Protected && has:
		return r.patch(ctx, site, func() { controllerutil.RemoveFinalizer(site, webv1.Finalizer) })
	default:
		return nil
	}
}

// patch writes a change on condition that nobody else wrote the Website meanwhile.
func (r *WebsiteReconciler) patch(ctx context.Context, site *webv1.Website, change func()) error {
	before := site.DeepCopy()
	change()
	err := r.Patch(ctx, site, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("patch website: %w", err)
	}
	return nil
}

func (r *WebsiteReconciler) writeConfigMap(ctx context.Context, site *webv1.Website, page []byte) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name + "-page"}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, cm, func() error {
		cm.Data = map[string]string{"index.html": string(page)}
		// A namesake's ConfigMap that the garbage collector has not reached yet becomes this one's.
		return controllerutil.SetControllerReference(site, cm, r.Scheme())
	})
	if err != nil {
		return fmt.Errorf("write configmap %s: %w", cm.Name, err)
	}
	return nil
}

func (r *WebsiteReconciler) writeStatus(ctx context.Context, site *webv1.Website, page []byte) error {
	before := site.Status.DeepCopy()
	sum := sha256.Sum256(page)
	site.Status.ObservedGeneration = site.Generation
	site.Status.Checksum = hex.EncodeToString(sum[:])
	meta.SetStatusCondition(&site.Status.Conditions, metav1.Condition{
		Type: webv1.ConditionPublished, Status: metav1.ConditionTrue, Reason: "Published",
		Message: "The page is published.", ObservedGeneration: site.Generation,
	})
	if equality.Semantic.DeepEqual(*before, site.Status) {
		return nil
	}
	// Update, not Patch: where the cache is behind, the conflict keeps an old status from overwriting a new one.
	if err := r.Status().Update(ctx, site); err != nil {
		return fmt.Errorf("update status of website: %w", err)
	}
	if before.ObservedGeneration == 0 {
		r.Recorder.Eventf(site, nil, corev1.EventTypeNormal, "Published", "Publish", "The page was published for the first time.")
	}
	return nil
}

func render(site *webv1.Website) []byte {
	title := html.EscapeString(site.Spec.Title)
	return fmt.Appendf(nil, "<!doctype html>\n<title>%s</title>\n<h1>%s</h1>\n<p>%s</p>\n", title, title, html.EscapeString(site.Spec.Content))
}
