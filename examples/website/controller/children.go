package controller

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
)

const (
	// CertificateAnnotation is the checksum of the certificate, on the Pods that serve with it: they read it once, when
	// they start, so that a new one has to start new Pods.
	CertificateAnnotation = "web.example.com/certificate"
	// PageFile is the page's name in the ConfigMap.
	PageFile = "index.html"

	fieldManager = "website-operator"
	image        = "halverneus/static-file-server:v1.8.10"
	web          = "web" // the container, its port, and the Service's
	webPort      = 8080
)

// PageName returns the name of a Website's ConfigMap. Its Deployment and its Service have its own name.
func PageName(site string) string { return site + "-page" }

func labels(site *webv1.Website) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "website", "app.kubernetes.io/instance": site.Name}
}

// The three children are written in three ways, all in common use. Each way compares with the cached object and writes
// only the differences, on condition that the object has not changed since. In each way, a child of a deleted namesake
// that the garbage collector has not deleted yet becomes this Website's child.

// writeConfigMap creates or updates the ConfigMap with the page.
func (r *WebsiteReconciler) writeConfigMap(ctx context.Context, site *webv1.Website, page []byte) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: PageName(site.Name)}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, cm, func() error {
		cm.Data = map[string]string{PageFile: string(page)}
		return controllerutil.SetControllerReference(site, cm, r.Scheme())
	})
	if err != nil {
		return fmt.Errorf("write configmap %s: %w", cm.Name, err)
	}
	return nil
}

// writeService creates or patches the Service in front of the Deployment.
func (r *WebsiteReconciler) writeService(ctx context.Context, site *webv1.Website) error {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	getErr := r.Get(ctx, client.ObjectKeyFromObject(s), s)
	if client.IgnoreNotFound(getErr) != nil {
		return fmt.Errorf("get service %s: %w", s.Name, getErr)
	}
	before := s.DeepCopy()
	if err := controllerutil.SetControllerReference(site, s, r.Scheme()); err != nil {
		return fmt.Errorf("service %s: %w", s.Name, err)
	}
	s.Spec.Selector = labels(site)
	port := corev1.ServicePort{Name: web, Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(web)}
	if site.Spec.SecretName != "" {
		port.Port = 443
	}
	s.Spec.Ports = []corev1.ServicePort{port}
	if getErr == nil {
		return r.patch(ctx, before, s)
	}
	// Headless: a router for thousands of Websites looks up their Pods itself. This cannot be changed later.
	s.Spec.ClusterIP = corev1.ClusterIPNone
	if err := r.Create(ctx, s); err != nil {
		return fmt.Errorf("create service %s: %w", s.Name, err)
	}
	return nil
}

// applyDeployment applies the Deployment that serves the page. It compares only the fields that this operator owns on
// the server: what others set beside them is theirs.
func (r *WebsiteReconciler) applyDeployment(ctx context.Context, site *webv1.Website, certificate string) error {
	want := deployment(site, certificate)
	var there appsv1.Deployment
	switch err := r.Get(ctx, client.ObjectKeyFromObject(site), &there); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get deployment %s: %w", site.Name, err)
	default:
		ours, err := appsv1ac.ExtractDeployment(&there, fieldManager)
		if err != nil {
			return fmt.Errorf("deployment %s: whose fields: %w", site.Name, err)
		}
		if equality.Semantic.DeepEqual(ours, want) {
			return nil
		}
		want.WithResourceVersion(there.ResourceVersion)
	}
	if err := r.Apply(ctx, want, client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply deployment %s: %w", site.Name, err)
	}
	return nil
}

// deployment is what this operator wants of a Website's Deployment.
func deployment(site *webv1.Website, certificate string) *appsv1ac.DeploymentApplyConfiguration {
	gvk := webv1.GroupVersion.WithKind("Website")
	server := corev1ac.Container().WithName(web).WithImage(image).
		WithPorts(corev1ac.ContainerPort().WithName(web).WithContainerPort(webPort).WithProtocol(corev1.ProtocolTCP)).
		WithEnv(env("PORT", strconv.Itoa(webPort)), env("FOLDER", "/web")).
		WithVolumeMounts(corev1ac.VolumeMount().WithName("page").WithMountPath("/web").WithReadOnly(true))
	pod := corev1ac.PodTemplateSpec().WithLabels(labels(site)).WithSpec(corev1ac.PodSpec().WithVolumes(
		corev1ac.Volume().WithName("page").WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(PageName(site.Name)))))
	if certificate != "" {
		pod.WithAnnotations(map[string]string{CertificateAnnotation: certificate})
		secret := corev1ac.SecretVolumeSource().WithSecretName(site.Spec.SecretName)
		pod.Spec.WithVolumes(corev1ac.Volume().WithName("tls").WithSecret(secret))
		server.WithVolumeMounts(corev1ac.VolumeMount().WithName("tls").WithMountPath("/tls").WithReadOnly(true)).
			WithEnv(env("TLS_CERT", "/tls/"+corev1.TLSCertKey), env("TLS_KEY", "/tls/"+corev1.TLSPrivateKeyKey))
	}
	pod.Spec.WithContainers(server)
	return appsv1ac.Deployment(site.Name, site.Namespace).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(gvk.GroupVersion().String()).WithKind(gvk.Kind).
			WithName(site.Name).WithUID(site.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(appsv1ac.DeploymentSpec().WithReplicas(ptr.Deref(site.Spec.Replicas, 1)).WithTemplate(pod).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels(site))))
}

func env(name, value string) *corev1ac.EnvVarApplyConfiguration {
	return corev1ac.EnvVar().WithName(name).WithValue(value)
}
