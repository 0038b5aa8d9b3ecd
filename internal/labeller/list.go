package labeller

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pageSize is how many objects are in memory at a time.
const pageSize = 500

// pages lists the scope, beginning with a consistent read, and calls f with each page until f returns false. If a list
// takes longer than the server keeps its version, pages continues at the same place with a newer version that the
// server offers. It returns an object that existed all the time once; the watch shows objects created meanwhile.
func (l *Labeller) pages(ctx context.Context, s scope, selector string,
	f func(*metav1.PartialObjectMetadataList) bool,
) error {
	l.stats.lists.Add(1)
	o := metav1.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		page, err := l.reads.Resource(s.resource).Namespace(s.namespace).List(ctx, o)
		if token := continueAfter(err); token != "" && token != o.Continue {
			o.Continue = token
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", s, denied(err, s, "list"))
		}
		if !f(page) || page.Continue == "" {
			return nil
		}
		o.Continue = page.Continue
	}
}

// continueAfter returns the token in a 410 response to a page, with which the list continues at another version.
func continueAfter(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == http.StatusGone {
		return status.Status().Continue
	}
	return ""
}

// targets returns the objects of a page whose label is wrong.
func (l *Labeller) targets(s scope, page *metav1.PartialObjectMetadataList) []target {
	var wrong []target
	for i := range page.Items {
		if t, ok := l.targetOf(s.resource, &page.Items[i]); ok {
			wrong = append(wrong, t)
		}
	}
	return wrong
}
