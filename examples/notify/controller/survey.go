package controller

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/rota-dev/rota/examples/notify/notice"
)

// surveyPage is how many objects are listed at a time.
const surveyPage = 200

// Survey lists all objects of the kind from the API server, a page at a time, and calls f for each that fails for a
// reason that is told. An informer would not do: it may hold only a part of the objects. The records are only asked
// since when objects fail.
func (k Kind) Survey(ctx context.Context, client dynamic.Interface, records *Records, f func(notice.Failure)) error {
	if !k.config.Wants(notice.Failing) {
		return nil
	}
	namespaces := k.config.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		objects := client.Resource(k.resource).Namespace(namespace)
		read := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) }
		// It reads one page ahead, and another one while that waits. So three are in memory.
		pages := pager.ListPager{PageSize: surveyPage, PageFn: read}
		err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
			failure, err := k.failure(obj.(*unstructured.Unstructured), records)
			if failure != nil {
				f(*failure)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s to see which fail: %w", k, err)
		}
	}
	return nil
}

// failure returns nil if the object does not fail for a reason that is told.
func (k Kind) failure(obj *unstructured.Unstructured, records *Records) (*notice.Failure, error) {
	s, err := k.see(obj)
	if err != nil || !k.config.WantsReason(s.health.reason) || s.health.reason == "" {
		return nil, err
	}
	since := s.health.failingSince
	if since.IsZero() {
		since = s.created
	}
	// A Pod without a readiness probe is ready for a moment in each round of its crash loop. Its record knows better. An
	// older object of its name may have left it.
	told := records.failingSince(k, cache.ObjectName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
	if told.Before(since) && !told.Before(s.created) {
		since = told
	}
	return &notice.Failure{Object: s.object, Reason: s.health.reason, Since: since.UTC()}, nil
}
