// Package controller reconciles Websites. Nothing in it knows of Rota.
package controller

import (
	"context"
	"fmt"
	"html"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
)

// WebsiteReconciler publishes Websites: each as a file outside Kubernetes, and as a ConfigMap that a Deployment behind
// a Service serves. The Website owns all three.
type WebsiteReconciler struct {
	// Client reads from the cache.
	client.Client
	Recorder record.EventRecorder
	Pages    Pages
}

// conflictDelay is how long to wait for the cache to catch up with a concurrent write.
const conflictDelay = 200 * time.Millisecond

// +kubebuilder:rbac:groups=web.example.com,resources=websites,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=web.example.com,resources=websites/status;websites/finalizers,verbs=get;update;patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reconcile brings what is published in line with the Website of that name. It is level-triggered: it may run any
// number of times for one change, and writes only what differs.
func (r *WebsiteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site webv1.Website
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("get website %s: %w", req, err)
		}
		// Only a Website without the finalizer is gone by now. The garbage collector takes its children.
		return ctrl.Result{}, r.Pages.Withdraw(req.NamespacedName)
	}
	err := r.reconcile(ctx, &site)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// The cache was behind. That is normal, so it is not reported as an error.
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err) // deleted meanwhile: the deletion has its own event
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
	certificate, err := r.certificate(ctx, site)
	if err != nil {
		return err
	}
	// Without its certificate the page is not served anew, and above all not without HTTPS. The event of the Secret's
	// creation triggers the next reconcile.
	if certificate.missing == "" {
		if err := r.applyDeployment(ctx, site, certificate.checksum); err != nil {
			return err
		}
		if err := r.writeService(ctx, site); err != nil {
			return err
		}
	}
	return r.writeStatus(ctx, site, page, certificate)
}

// finalize withdraws a Website that is being deleted, and lets it go.
func (r *WebsiteReconciler) finalize(ctx context.Context, site *webv1.Website) error {
	if !controllerutil.ContainsFinalizer(site, webv1.Finalizer) {
		return nil
	}
	if err := r.Pages.Withdraw(client.ObjectKeyFromObject(site)); err != nil {
		return err
	}
	before := site.DeepCopy()
	controllerutil.RemoveFinalizer(site, webv1.Finalizer)
	return r.patch(ctx, before, site)
}

// protect has the finalizer on protected Websites, and only on those. It comes before anything is published.
func (r *WebsiteReconciler) protect(ctx context.Context, site *webv1.Website) error {
	before := site.DeepCopy()
	if site.Spec.Protected {
		controllerutil.AddFinalizer(site, webv1.Finalizer)
	} else {
		controllerutil.RemoveFinalizer(site, webv1.Finalizer)
	}
	return r.patch(ctx, before, site)
}

// patch writes the differences, if there are any, on condition that the object was not written meanwhile.
func (r *WebsiteReconciler) patch(ctx context.Context, before, after client.Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	err := r.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("patch %T %s: %w", after, after.GetName(), err)
	}
	return nil
}

func (r *WebsiteReconciler) writeStatus(ctx context.Context, site *webv1.Website, page []byte, c certificate) error {
	before := site.Status.DeepCopy()
	site.Status.ObservedGeneration = site.Generation
	site.Status.Checksum = checksum(page)
	meta.SetStatusCondition(&site.Status.Conditions, metav1.Condition{
		Type: webv1.ConditionPublished, Status: metav1.ConditionTrue, Reason: "Published",
		Message: "The page is published.", ObservedGeneration: site.Generation,
	})
	c.setCondition(site)
	if equality.Semantic.DeepEqual(*before, site.Status) {
		return nil
	}
	// Update, not Patch: where the cache is behind, the conflict keeps an old status from overwriting a new one.
	if err := r.Status().Update(ctx, site); err != nil {
		return fmt.Errorf("update status of website: %w", err)
	}
	if before.ObservedGeneration == 0 {
		r.Recorder.Event(site, corev1.EventTypeNormal, "Published", "The page was published for the first time.")
	}
	return nil
}

func render(site *webv1.Website) []byte {
	title := html.EscapeString(site.Spec.Title)
	content := html.EscapeString(site.Spec.Content)
	return fmt.Appendf(nil, "<!doctype html>\n<title>%s</title>\n<h1>%s</h1>\n<p>%s</p>\n", title, title, content)
}
