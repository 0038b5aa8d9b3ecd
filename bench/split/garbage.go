package split

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/stage"
)

// garbageNamespace has the owners and their dependents.
const garbageNamespace = "garbage"

// owners share the dependents.
const owners = 20

// makeGarbage creates owners and dependents, which are no garbage yet.
func (c *cluster) makeGarbage(ctx context.Context, o *Options, s Scenario) error {
	refs := make([]metav1.OwnerReference, owners)
	for i := range refs {
		owner := ownerOf(i)
		if err := c.client.Create(ctx, owner); err != nil {
			return err
		}
		refs[i] = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
	}
	err := stage.Parallel(ctx, 0, o.ConfigMaps+o.Pods, func(i int) error {
		meta := metav1.ObjectMeta{
			Namespace: garbageNamespace, Name: fmt.Sprintf("dependent-%06d", i),
			OwnerReferences: refs[i%len(refs):][:1],
		}
		if i < o.ConfigMaps {
			return c.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": meta.Name}})
		}
		return c.client.Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: podSpec()})
	})
	if err != nil {
		return err
	}
	for i := range s.Quotas { // at last, because they slow down the creation of objects
		if err := c.client.Create(ctx, quota(i)); err != nil {
			return err
		}
	}
	return nil
}

// quota is a ResourceQuota that allows everything.
func quota(i int) *corev1.ResourceQuota {
	plenty := resource.MustParse("1000000")
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: garbageNamespace, Name: "quota-" + strconv.Itoa(i)},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceConfigMaps: plenty, corev1.ResourcePods: plenty,
			corev1.ResourceRequestsCPU: plenty, corev1.ResourceRequestsMemory: plenty,
		}},
	}
}

func ownerOf(i int) *corev1.ConfigMap { return configMap(garbageNamespace, "owner-"+strconv.Itoa(i)) }

// flood deletes the owners, so that all dependents are garbage.
func (c *cluster) flood(ctx context.Context) error {
	return stage.Parallel(ctx, 0, owners, func(i int) error {
		return c.client.Delete(ctx, ownerOf(i), client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
}

// left counts the objects in the namespace of the garbage.
func (c *cluster) left(ctx context.Context) (int, error) {
	total := 0
	for _, kind := range []string{"ConfigMap", "Pod"} {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := c.client.List(ctx, page, client.InNamespace(garbageNamespace), client.Limit(1)); err != nil {
			return 0, fmt.Errorf("count what is left of the garbage: %w", err)
		}
		total += len(page.Items)
		if page.RemainingItemCount != nil {
			total += int(*page.RemainingItemCount)
		}
	}
	return total, nil
}

// works waits until the controllers that are measured work: garbage is collected and a Deployment has a Pod.
func (c *cluster) works(ctx context.Context) error {
	owner := configMap(deskNamespace, "canary")
	if err := c.client.Create(ctx, owner); err != nil {
		return err
	}
	dependent := configMap(deskNamespace, "canary-dependent")
	dependent.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}
	err := errors.Join(c.client.Create(ctx, dependent), c.client.Delete(ctx, owner),
		c.client.Create(ctx, deployment(deskNamespace, "canary", 1)))
	if err != nil {
		return err
	}
	return await.Until(ctx, 200*time.Millisecond, 3*time.Minute, func() string {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(dependent), dependent); err == nil {
			return "garbage is not collected"
		} else if client.IgnoreNotFound(err) != nil {
			return err.Error()
		}
		var pods corev1.PodList
		if err := c.client.List(ctx, &pods, client.InNamespace(deskNamespace)); err != nil {
			return err.Error()
		}
		if len(pods.Items) == 0 {
			return "a Deployment has no Pod"
		}
		return ""
	})
}
