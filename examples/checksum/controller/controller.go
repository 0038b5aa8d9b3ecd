// Package controller publishes the checksums of Secrets: for each Secret that asks for it, a ConfigMap beside it holds
// the SHA-256 of its data. Who may not read the Secret can see that it has changed, and restart what uses it.
//
// It is plain client-go, in the style of kubernetes/sample-controller. Nothing in it knows of Rota.
package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// Annotation asks for the checksum of a Secret on which it is "true".
	Annotation = "checksum.example.com/publish"
	// Suffix is appended to a Secret's name to get its ConfigMap's name.
	Suffix = "-checksum"
	// DataKey is the ConfigMap's only key.
	DataKey = "sha256"
)

// Controller keeps the ConfigMaps in line with the Secrets.
type Controller struct {
	// Sync brings one Secret's ConfigMap in line. As in Kubernetes' own controllers it is a field, so that it can be
	// replaced before Run.
	Sync func(ctx context.Context, name cache.ObjectName) error

	client  kubernetes.Interface
	secrets corelisters.SecretLister
	synced  cache.InformerSynced
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// New returns a controller that is woken by the informer.
func New(client kubernetes.Interface, secrets coreinformers.SecretInformer,
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName],
) (*Controller, error) {
	c := &Controller{client: client, secrets: secrets.Lister(), synced: secrets.Informer().HasSynced, queue: queue}
	c.Sync = c.sync
	_, err := secrets.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, secret any) { c.enqueue(secret) },
		DeleteFunc: c.enqueue,
	})
	return c, err
}

func (c *Controller) enqueue(secret any) {
	name, err := cache.DeletionHandlingObjectToName(secret)
	if err != nil {
		runtime.HandleError(err)
		return
	}
	c.queue.Add(name)
}

// Run works until ctx ends, and returns when all workers have.
func (c *Controller) Run(ctx context.Context, workers int) {
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
}

func (c *Controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.Sync(ctx, name); err != nil {
		runtime.HandleErrorWithContext(ctx, err, "Cannot sync the Secret; trying again", "secret", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	secret, err := c.secrets.Secrets(name.Namespace).Get(name.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil || secret.Annotations[Annotation] != "true" {
		return c.withdraw(ctx, name)
	}
	return c.publish(ctx, secret)
}

// publish writes the ConfigMap where it differs, with the version that was read.
func (c *Controller) publish(ctx context.Context, secret *corev1.Secret) error {
	configMaps := c.client.CoreV1().ConfigMaps(secret.Namespace)
	want := map[string]string{DataKey: Checksum(secret.Data)}
	// If no replica sees the Secret's deletion, the garbage collector deletes the ConfigMap.
	owner := *metav1.NewControllerRef(secret, corev1.SchemeGroupVersion.WithKind("Secret"))
	old, err := configMaps.Get(ctx, secret.Name+Suffix, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: secret.Name + Suffix, OwnerReferences: []metav1.OwnerReference{owner}},
			Data:       want,
		}
		_, err = configMaps.Create(ctx, cm, metav1.CreateOptions{})
	case err != nil:
	case !ours(old, secret.Name):
		return fmt.Errorf("configmap %s/%s is not a checksum of ours: rename it, or the secret", old.Namespace, old.Name)
	case !maps.Equal(old.Data, want) || !metav1.IsControlledBy(old, secret):
		cm := old.DeepCopy()
		cm.OwnerReferences, cm.Data = []metav1.OwnerReference{owner}, want // the owner may be an earlier namesake
		_, err = configMaps.Update(ctx, cm, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("publish checksum of secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Published", "secret", klog.KObj(secret))
	return nil
}

// withdraw deletes the ConfigMap of a Secret that is gone or does not ask for it any more.
func (c *Controller) withdraw(ctx context.Context, name cache.ObjectName) error {
	configMaps := c.client.CoreV1().ConfigMaps(name.Namespace)
	old, err := configMaps.Get(ctx, name.Name+Suffix, metav1.GetOptions{})
	if err == nil {
		if !ours(old, name.Name) {
			return nil
		}
		err = configMaps.Delete(ctx, old.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion},
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("withdraw checksum of secret %s: %w", name, err)
	}
	return nil
}

// ours says whether the ConfigMap was made for a Secret of that name.
func ours(cm *corev1.ConfigMap, secret string) bool {
	owner := metav1.GetControllerOf(cm)
	return owner != nil && owner.Kind == "Secret" && owner.Name == secret
}

// Checksum returns the SHA-256 of a Secret's data, in hex.
func Checksum(data map[string][]byte) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		// Quotes keep {"a": "b"} and {"ab": ""} apart.
		_, _ = fmt.Fprintf(h, "%s %s", strconv.Quote(key), strconv.Quote(string(data[key])))
	}
	return hex.EncodeToString(h.Sum(nil))
}
