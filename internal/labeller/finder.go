package labeller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Finder finds the resources of kinds. It does not cache, so it notices when CustomResourceDefinitions come, go or
// change versions.
type Finder struct{ client rest.Interface }

// NewFinder returns a Finder for the API server of a config.
func NewFinder(cfg *rest.Config) (*Finder, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return &Finder{client.RESTClient()}, nil
}

// Mapping returns the resource of a kind in the version that the API server prefers, or a meta.NoKindMatchError if it
// serves none. If the server does not answer, Mapping asks again until ctx ends.
func (f *Finder) Mapping(ctx context.Context, kind schema.GroupKind) (*meta.RESTMapping, error) {
	for {
		m, err := f.Look(ctx, kind)
		if err == nil || meta.IsNoMatchError(err) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}

// Look is Mapping without retries. It takes two requests if the preferred version has the kind.
func (f *Finder) Look(ctx context.Context, kind schema.GroupKind) (*meta.RESTMapping, error) {
	versions, err := f.versions(ctx, kind.Group)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		path := "/apis/" + v.String()
		if v.Group == "" {
			path = "/api/" + v.Version
		}
		var served metav1.APIResourceList
		if found, err := f.get(ctx, path, &served); err != nil || !found {
			if err != nil {
				return nil, err
			}
			continue
		}
		for _, r := range served.APIResources {
			if r.Kind != kind.Kind || strings.Contains(r.Name, "/") {
				continue // another kind, or a subresource
			}
			m := &meta.RESTMapping{Resource: v.WithResource(r.Name), GroupVersionKind: v.WithKind(r.Kind),
				Scope: meta.RESTScopeRoot}
			if r.Namespaced {
				m.Scope = meta.RESTScopeNamespace
			}
			return m, nil
		}
	}
	var searched []string
	for _, v := range versions {
		searched = append(searched, v.Version)
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: searched}
}

// versions returns the served versions of a group, the preferred one first.
func (f *Finder) versions(ctx context.Context, group string) ([]schema.GroupVersion, error) {
	if group == "" {
		return []schema.GroupVersion{{Version: "v1"}}, nil
	}
	var all metav1.APIGroupList
	if _, err := f.get(ctx, "/apis", &all); err != nil {
		return nil, err
	}
	for _, g := range all.Groups {
		if g.Name != group {
			continue
		}
		out := []schema.GroupVersion{{Group: group, Version: g.PreferredVersion.Version}}
		for _, v := range g.Versions {
			if v.Version != g.PreferredVersion.Version {
				out = append(out, schema.GroupVersion{Group: group, Version: v.Version})
			}
		}
		return out, nil
	}
	return nil, nil
}

// get reads one discovery document. It returns false if there is none.
func (f *Finder) get(ctx context.Context, path string, into runtime.Object) (bool, error) {
	err := f.client.Get().AbsPath(path).MaxRetries(0).Do(ctx).Into(into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("discovery %s: %w", path, err)
	}
	return true, nil
}
