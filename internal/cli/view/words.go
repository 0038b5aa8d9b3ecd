package view

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Word returns the shortest word that Finder.Kind resolves to a kind: its resource, with the group if it is ambiguous.
func (f *Finder) Word(kind schema.GroupKind) (string, error) {
	m, err := f.Kind(kind.String(), kind)
	if err != nil {
		return "", err
	}
	word := m.Resource.Resource
	if found, err := f.Kind(word); err != nil || found.GroupVersionKind.GroupKind() != kind {
		word = m.Resource.GroupResource().String()
	}
	return word, nil
}

// Names returns the names of the first objects of a kind in a namespace. See Finder.Kind for its error.
func (f *Finder) Names(ctx context.Context, kind, namespace string, limit int64) ([]string, error) {
	m, err := f.Kind(kind)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	list, err := f.client.Resource(m.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: limit})
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out, nil
}
