package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Stamp gives an object the labels of all deliveries. So every form finds the same objects, and none has labels to
// write. An operator with Rota stamps the objects that it creates. The labeller labels older objects once, at a rate
// that would take longer than everything else here.
func Stamp(scheme *runtime.Scheme, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return err
	}
	kind := gvk.GroupKind()
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		own := slot.KeyName.Hash(obj.GetNamespace(), obj.GetName(), "")
		labels[sharding.HashLabel(slot.KeyName, kind)] = sharding.LabelValue(own)
	} else {
		byName, byUID := slot.KeyName.Hash(obj.GetNamespace(), owner.Name, ""), slot.KeyUID.Hash("", "", string(owner.UID))
		labels[sharding.OwnerLabel(slot.KeyName, kind)] = sharding.LabelValue(byName)
		labels[sharding.OwnerLabel(slot.KeyUID, kind)] = sharding.LabelValue(byUID)
	}
	obj.SetLabels(labels)
	return nil
}

// StampingClient is a manager's client that stamps new objects.
func StampingClient(cfg *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(cfg, o)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := Stamp(c.Scheme(), obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Apply: func(
			ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption,
		) error {
			if err := c.Apply(ctx, obj, opts...); err != nil {
				return err
			}
			// Another field manager applies the labels. The operator's next apply would remove labels of its own.
			return stampApplied(ctx, c, obj)
		},
	}), nil
}

// stampApplied stamps an applied object. It is a Deployment: the operator applies nothing else.
func stampApplied(ctx context.Context, c client.Client, obj runtime.ApplyConfiguration) error {
	applied, ok := obj.(*appsv1ac.DeploymentApplyConfiguration)
	if !ok {
		return fmt.Errorf("the operator applies a %T now: it has to be stamped", obj)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: *applied.Namespace, Name: *applied.Name}}
	for _, o := range applied.OwnerReferences {
		d.OwnerReferences = append(d.OwnerReferences,
			metav1.OwnerReference{Name: *o.Name, UID: *o.UID, Controller: o.Controller})
	}
	if err := Stamp(c.Scheme(), d); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": d.Labels}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, d, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("rota-bench"))
}
