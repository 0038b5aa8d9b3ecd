package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
)

const (
	// websiteBytes is the size of a Website in JSON, with its metadata and its status.
	websiteBytes = 2048
	// overhead is the part of it that is not content.
	overhead = 1325
)

// kinds lists the main kinds and the kinds of their children.
var kinds = []schema.GroupVersionKind{
	webv1.GroupVersion.WithKind("Website"),
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"},
}

// resources are the kinds as counts of requests name them.
var resources = []string{"websites", "deployments", "services", "configmaps"}

// seed makes the objects. An operator makes the children.
func (r *runner) seed(ctx context.Context) (err error) {
	n := r.sites()
	r.say("making %d objects", n*perSite)
	r.load = rig.NewLoad(r.waits.timed(r.cluster.Client), r.cluster.Sites, 0, func(s *rig.Site) webv1.WebsiteSpec {
		content := fmt.Sprintf("Edition %06d. %s", s.Edition, strings.Repeat("0123456789abcde ", websiteBytes/16))
		return webv1.WebsiteSpec{Title: "The website " + s.Name, Content: content[:websiteBytes-overhead]}
	})
	if err := r.load.Fill(ctx, n); err != nil {
		return err
	}
	leader, _ := find("leader")
	c := r.newCrew(leader, 1)
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	if err := c.quieten(ctx); err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := r.stamp(ctx, kind, n); err != nil {
			return err
		}
	}
	return nil
}

// stamp gives all n objects of a kind the labels of SlotLabel. So each strategy finds the same objects, and none has
// labels to write: an operator with Rota labels what it creates, and older objects at a rate that would take longer
// than all that is measured. The labels have a field manager of their own, so that no apply of the operator removes
// them.
func (r *runner) stamp(ctx context.Context, kind schema.GroupVersionKind, n int) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := r.cluster.Client.List(ctx, list, client.InNamespace(r.cluster.Sites)); err != nil {
		return err
	}
	if len(list.Items) != n {
		return fmt.Errorf("there are %d objects of kind %s: want %d", len(list.Items), kind.Kind, n)
	}
	return rig.Parallel(ctx, 0, n, func(i int) error {
		obj := &list.Items[i]
		name, label := obj.Name, sharding.HashLabel(slot.KeyName, kind.GroupKind())
		if owner := metav1.GetControllerOf(obj); owner != nil {
			name, label = owner.Name, sharding.OwnerLabel(slot.KeyName, kind.GroupKind())
		}
		value := sharding.LabelValue(slot.KeyName.Hash(obj.Namespace, name, ""))
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{label: value}}})
		if err != nil {
			return err
		}
		obj.SetGroupVersionKind(kind)
		return r.cluster.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("rota-bench"))
	})
}
