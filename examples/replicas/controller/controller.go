// Package controller keeps as many Pods as each set asks for. A set is a ConfigMap with the label
// replicas.example.com/set: "true" and a number in data["replicas"]; its Pods carry the label replicas.example.com/of
// with the set's name.
//
// It works as Kubernetes' own ReplicaSet controller does: it adopts Pods that match and belong to nobody, releases
// those that do not match any more, names new ones by generateName, and counts what it has made and deleted until its
// informer has shown that (expectations). It is plain client-go, and nothing in it knows of Rota.
package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// SetLabel "true" makes a ConfigMap a set.
	SetLabel = "replicas.example.com/set"
	// OfLabel on a Pod names its set.
	OfLabel = "replicas.example.com/of"
	// ReplicasKey of a set's data says how many Pods it wants.
	ReplicasKey = "replicas"
)

var setKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// Queue is the work queue of the controller: its items are namespace/name.
type Queue = workqueue.TypedRateLimitingInterface[string]

// Controller keeps the Pods in line with the sets.
type Controller struct {
	// Sync brings one set in line. It is a field so that it can be replaced before Run.
	Sync func(ctx context.Context, key string) error

	client       kubernetes.Interface
	sets         corelisters.ConfigMapLister
	pods         corelisters.PodLister
	synced       []cache.InformerSynced
	queue        Queue
	expectations expectations
}

// New returns a controller that is woken by the factory's informers.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory, queue Queue) (*Controller, error) {
	sets, pods := factory.Core().V1().ConfigMaps(), factory.Core().V1().Pods()
	c := &Controller{
		client: client, sets: sets.Lister(), pods: pods.Lister(), queue: queue,
		synced: []cache.InformerSynced{sets.Informer().HasSynced, pods.Informer().HasSynced},
	}
	c.Sync = c.sync
	_, setErr := sets.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, set any) { c.enqueue(set) },
		DeleteFunc: c.setDeleted,
	})
	_, podErr := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.podAdded, UpdateFunc: c.podUpdated, DeleteFunc: c.podDeleted,
	})
	return c, errors.Join(setErr, podErr)
}

// Forget forgets what the controller expects to see of a set: it is not sure to hear of it.
func (c *Controller) Forget(_ context.Context, key string) { c.expectations.forget(key) }

func (c *Controller) enqueue(set any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(set); err == nil {
		c.queue.Add(key)
	}
}

func (c *Controller) setDeleted(set any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(set); err == nil {
		c.expectations.forget(key)
		c.queue.Add(key)
	}
}

// ownerOf returns the key of the set that controls a Pod.
func ownerOf(pod *corev1.Pod) (string, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != setKind.Kind {
		return "", false
	}
	return cache.NewObjectName(pod.Namespace, owner.Name).String(), true
}

// wake wakes the set of a Pod, or the one that may adopt it.
func (c *Controller) wake(pod *corev1.Pod) {
	if key, owned := ownerOf(pod); owned {
		c.queue.Add(key)
	} else if name := pod.Labels[OfLabel]; name != "" && metav1.GetControllerOf(pod) == nil {
		c.queue.Add(cache.NewObjectName(pod.Namespace, name).String())
	}
}

func (c *Controller) podAdded(obj any) {
	pod := obj.(*corev1.Pod)
	if key, owned := ownerOf(pod); owned {
		c.expectations.created(key)
	}
	c.wake(pod)
}

func (c *Controller) podUpdated(old, obj any) {
	before, pod := old.(*corev1.Pod), obj.(*corev1.Pod)
	if before.ResourceVersion == pod.ResourceVersion {
		return // a resync
	}
	if pod.DeletionTimestamp != nil {
		c.podDeleted(pod)
		return
	}
	c.wake(before)
	c.wake(pod)
}

func (c *Controller) podDeleted(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	if key, owned := ownerOf(pod); owned {
		c.expectations.deleted(key, pod.UID)
		c.queue.Add(key)
	}
}

// Run works until ctx ends, and returns when all workers have.
func (c *Controller) Run(ctx context.Context, workers int) {
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
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
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.Sync(ctx, key); err != nil {
		runtime.HandleErrorWithContext(ctx, err, "Cannot sync the set; trying again", "set", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

func (c *Controller) sync(ctx context.Context, key string) error {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return err
	}
	set, err := c.sets.ConfigMaps(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.expectations.forget(key)
		return nil // its Pods are the garbage collector's
	}
	if err != nil || set.Labels[SetLabel] != "true" || set.DeletionTimestamp != nil {
		return err
	}
	want, err := strconv.Atoi(set.Data[ReplicasKey])
	if err != nil || want < 0 {
		klog.FromContext(ctx).Info("The set does not say how many Pods it wants",
			"set", key, "replicas", set.Data[ReplicasKey])
		return nil //nolint:nilerr // trying again would not help: there will be an event
	}
	settled := c.expectations.settled(key)
	pods, err := c.claim(ctx, set)
	if err != nil || !settled {
		return err // what is expected comes with an event
	}
	if len(pods) < want {
		return c.create(ctx, key, set, want-len(pods))
	}
	return c.delete(ctx, key, pods, len(pods)-want)
}

// claim returns the Pods of a set, having adopted those that match and are nobody's, and released those that do not
// match.
func (c *Controller) claim(ctx context.Context, set *corev1.ConfigMap) ([]*corev1.Pod, error) {
	all, err := c.pods.Pods(set.Namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var claimed []*corev1.Pod
	var errs []error
	for _, pod := range all {
		owner := metav1.GetControllerOf(pod)
		matches := pod.Labels[OfLabel] == set.Name
		if pod.DeletionTimestamp != nil || owner != nil && owner.UID != set.UID || owner == nil && !matches {
			continue
		}
		refs := []metav1.OwnerReference{}
		if matches {
			refs = append(refs, *metav1.NewControllerRef(set, setKind))
		}
		if (owner != nil) != matches {
			err := c.patch(ctx, pod, refs)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				continue // gone, or somebody else's by now: there will be an event
			} else if err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if matches {
			claimed = append(claimed, pod)
		}
	}
	return claimed, errors.Join(errs...)
}

// patch sets a Pod's owners, if it is still as it was.
func (c *Controller) patch(ctx context.Context, pod *corev1.Pod, owners []metav1.OwnerReference) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "ownerReferences": owners,
	}})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func (c *Controller) create(ctx context.Context, key string, set *corev1.ConfigMap, n int) error {
	c.expectations.expectCreations(key, n)
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: set.Name + "-", Labels: map[string]string{OfLabel: set.Name},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, setKind)},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/replica"}}},
		}
		if _, err := c.client.CoreV1().Pods(set.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			unseen := n - i
			if unknown(err) {
				unseen-- // it may be there: expect it for some time, rather than make another one
				c.expectations.expire(key, unknownTime)
				c.queue.AddAfter(key, unknownTime)
			}
			for range unseen {
				c.expectations.created(key)
			}
			return fmt.Errorf("create a Pod of set %s: %w", key, err)
		}
	}
	return nil
}

// unknownTime is how long a Pod is expected of which nobody knows whether it was made.
const unknownTime = 10 * time.Second

// unknown says that an error does not tell whether the write took effect.
func unknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// delete deletes n of the Pods, the youngest first.
func (c *Controller) delete(ctx context.Context, key string, pods []*corev1.Pod, n int) error {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if byAge := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); byAge != 0 {
			return byAge
		}
		return strings.Compare(a.Name, b.Name)
	})
	pods = pods[:n]
	c.expectations.expectDeletions(key, pods)
	var errs []error
	for _, pod := range pods {
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
		err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
		if err != nil {
			c.expectations.deleted(key, pod.UID)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete Pod %s of set %s: %w", pod.Name, key, err))
		}
	}
	return errors.Join(errs...)
}
