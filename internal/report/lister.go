package report

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/labeller"
)

// Lister lists objects from the API server in pages. It implements Objects.
type Lister struct {
	find       *labeller.Finder
	client     metadata.Interface
	namespaces []string
}

// NewLister returns a Lister for the namespaces, or for all if there are none.
func NewLister(cfg *rest.Config, namespaces []string) (*Lister, error) {
	find, err := labeller.NewFinder(cfg)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	return &Lister{find: find, client: client, namespaces: namespaces}, nil
}

const (
	// shadowPage is the number of objects in a page, and shadowPause the pause after each page.
	shadowPage  = 500
	shadowPause = 20 * time.Millisecond
	// shadowAnswer bounds the search for a kind's resource, and each page.
	shadowAnswer = 10 * time.Second
)

// List implements Objects.
func (l *Lister) List(ctx context.Context, kind schema.GroupKind, each func(metav1.Object)) (string, error) {
	version := ""
	m, err := l.look(ctx, kind)
	if meta.IsNoMatchError(err) {
		return "", fmt.Errorf("the API server does not serve kind %s: install it, or correct the kinds of NewShadow", kind)
	}
	if err != nil {
		return "", err
	}
	namespaces := l.namespaces
	if len(namespaces) == 0 || m.Scope.Name() == meta.RESTScopeNameRoot {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		o := metav1.ListOptions{Limit: shadowPage}
		for {
			page, err := l.page(ctx, m.Resource, namespace, o)
			if err != nil {
				return "", fmt.Errorf("list %s: %w", m.Resource.GroupResource(), err)
			}
			for i := range page.Items {
				each(&page.Items[i])
			}
			// Use the version of the first list: an object that changes between two lists is then counted twice, not never.
			if version == "" {
				version = page.ResourceVersion
			}
			if o.Continue = page.Continue; o.Continue == "" {
				break
			}
			_ = await.Sleep(ctx, shadowPause)
		}
	}
	return version, nil
}

// look tries only once. While the group of one kind does not answer, the other kinds are listed.
func (l *Lister) look(ctx context.Context, kind schema.GroupKind) (*meta.RESTMapping, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shadowAnswer, errNoAnswer)
	defer cancel()
	m, err := l.find.Look(ctx, kind)
	return m, unanswered(ctx, err)
}

func (l *Lister) page(ctx context.Context, of schema.GroupVersionResource, namespace string, o metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shadowAnswer, errNoAnswer)
	defer cancel()
	out, err := l.client.Resource(of).Namespace(namespace).List(ctx, o)
	return out, unanswered(ctx, err)
}

var errNoAnswer = fmt.Errorf("the API server did not answer within %v", shadowAnswer)

// unanswered adds errNoAnswer to the error of a request that took too long.
func unanswered(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return err
}
