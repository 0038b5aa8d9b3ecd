// Package serving detects API server features that Rota uses: API versions, shard selectors, WatchList, and feature
// gates. It does not rely on the server's version, because gates and managed clusters change the features.
package serving

import (
	"context"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
)

// Resource reports whether the API server serves a resource in a version, such as leases in coordination.k8s.io/v1.
func Resource(disco discovery.DiscoveryInterface, version, resource string) (bool, error) {
	list, err := disco.ServerResourcesForGroupVersion(version)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == resource }), nil
}

// policyVersions are the versions of ValidatingAdmissionPolicies, the newest first.
var policyVersions = []string{"v1", "v1beta1", "v1alpha1"}

// Policies returns the newest version of ValidatingAdmissionPolicies that the API server serves, or "" if there is
// none.
func Policies(disco discovery.DiscoveryInterface) (version string, err error) {
	for _, version := range policyVersions {
		served, err := Resource(disco, "admissionregistration.k8s.io/"+version, "validatingadmissionpolicies")
		if err != nil || served {
			return version, err
		}
	}
	return "", nil
}

// Shards reports whether the API server honors shard selectors, which it shows in lists of built-in kinds. core is a
// client of the core group. The namespace may be empty, and need not exist.
func Shards(ctx context.Context, core rest.Interface, namespace string) (bool, error) {
	half := sharding.ShardRange(0, 1<<63-1)
	request := configMaps(core, namespace).Param("limit", "1").Param(clientgo.ShardSelectorParameter, half)
	text, err := request.SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return false, err
	}
	var list struct {
		Metadata struct {
			ShardInfo *struct{} `json:"shardInfo"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return false, err
	}
	return list.Metadata.ShardInfo != nil, nil
}

// WatchList reports whether a watch may begin with the existing objects, as client-go's informers request. It needs
// permission to watch ConfigMaps in the namespace, which may be empty, and need not exist.
func WatchList(ctx context.Context, core rest.Interface, namespace string) (bool, error) {
	request := configMaps(core, namespace).Param("watch", "true").Param("sendInitialEvents", "true").
		Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan)).
		Param("allowWatchBookmarks", "true").
		// The selector matches no object, so only one bookmark arrives.
		Param("fieldSelector", "metadata.name=-").Param("timeoutSeconds", "5")
	stream, err := request.SetHeader("Accept", "application/json").Stream(ctx)
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err): // the gate is off
		return false, nil
	case err != nil:
		return false, err
	}
	defer func() { _ = stream.Close() }()
	for d := json.NewDecoder(stream); ; {
		var event struct {
			Object metav1.PartialObjectMetadata `json:"object"`
		}
		if err := d.Decode(&event); err != nil {
			return false, ctx.Err() // it does not support initial events, and ends
		}
		if event.Object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			return true, nil
		}
	}
}

func configMaps(core rest.Interface, namespace string) *rest.Request {
	request := core.Get().Resource(string(corev1.ResourceConfigMaps))
	if namespace != "" {
		request = request.Namespace(namespace)
	}
	return request
}
