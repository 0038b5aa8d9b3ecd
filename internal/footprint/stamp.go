package footprint

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/slot"
)

// stamp gives an object the labels of all deliveries, so that every form finds the same objects, and none has any to
// write. An operator with Rota stamps what it creates by itself; what was there before it gets its labels from the labeller,
// once, at a rate that would take longer than all else here.
func stamp(obj client.Object) {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		labels[delivery.HashLabel(slot.KeyName)] = delivery.LabelValue(slot.KeyName.Hash(obj.GetNamespace(), obj.GetName(), ""))
	} else {
		labels[delivery.OwnerLabel(slot.KeyName)] = delivery.LabelValue(slot.KeyName.Hash(obj.GetNamespace(), owner.Name, ""))
		labels[delivery.OwnerLabel(slot.KeyUID)] = delivery.LabelValue(slot.KeyUID.Hash("", "", string(owner.UID)))
	}
	obj.SetLabels(labels)
}

// stampingClient is a manager's client whose new objects are stamped.
func stampingClient(cfg *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(cfg, o)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			stamp(obj)
			return c.Create(ctx, obj, opts...)
		},
	}), nil
}
