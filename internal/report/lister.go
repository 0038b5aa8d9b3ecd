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

// Lister lists by the API server, in pages. It implements Objects.
type Lister struct {
	find       *labeller.Finder
	client     metadata.Interface
	namespaces []string
}

// NewLister returns a Lister of the namespaces; none: of all.
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
	// shadowPage is the number of objects in a page, and shadowPause the pause after one.
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
			// The first list's is the earliest: an object that changes between two of them counts twice rather than never.
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

// look asks once: while one kind's group does not answer, the others are listed.
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

// unanswered adds that to an error of a request that took too long.
func unanswered(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return err
}
