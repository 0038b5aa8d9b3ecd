package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// pageSize is how many objects a page of a list has: what is not kept is in memory for one page only.
const pageSize = 1000

// errOvertaken says that the whole was listed meanwhile.
var errOvertaken = errors.New("overtaken by another list")

// list returns the objects of a task's slots at a version, consistently; or none, and "", where the API server does
// not serve the kind. It tries again until it succeeds; it does not where ctx ends or a list of the whole overtakes
// the task.
func (s *source) list(ctx context.Context, t task) ([]runtime.Object, string, bool) {
	paged, backoff := true, firstBackoff
	for {
		items, version, err := s.listOnce(ctx, t, paged)
		switch {
		case s.answered(err):
			return nil, "", true
		case err == nil:
			return items, version, true
		case ctx.Err() != nil, errors.Is(err, errOvertaken):
			return nil, "", false
		case paged && apierrors.IsResourceExpired(err):
			paged = false // the version of the first page was gone before the last one was read
			continue
		}
		s.inf.share.log.Error(err, "Cannot list, trying again; slots on their way here wait for it", "kind", s.inf.kind.String(), "in", backoff.String())
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

func (s *source) listOnce(ctx context.Context, t task, paged bool) ([]runtime.Object, string, error) {
	o := metav1.ListOptions{}
	if paged {
		o.Limit = pageSize
	}
	s.inf.share.scope.list(&o, t.set)
	var items []runtime.Object
	for {
		s.mu.Lock()
		overtaken := s.gen != t.gen
		s.mu.Unlock()
		if overtaken {
			return nil, "", errOvertaken
		}
		page, err := s.upstream.ListWithContext(ctx, o)
		if err != nil {
			return nil, "", err
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return nil, "", fmt.Errorf("list of %s: %w", s.inf.kind, err)
		}
		s.mu.Lock()
		err = meta.EachListItem(page, func(obj runtime.Object) error {
			if n, _, ok := s.inf.slotOf(obj); ok && t.set.Has(n) {
				items = append(items, s.detach(obj))
				s.see(n, versionOf(obj))
			}
			return nil
		})
		s.mu.Unlock()
		if err != nil {
			return nil, "", fmt.Errorf("list of %s: %w", s.inf.kind, err)
		}
		if o.Continue = about.GetContinue(); o.Continue == "" {
			return items, about.GetResourceVersion(), nil
		}
	}
}

// detach copies an item out of its list, whose memory can go then, and makes it fit to be an event's object.
func (s *source) detach(obj runtime.Object) runtime.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	out := to.Interface().(runtime.Object)
	if gvk := s.inf.mark.example.GetObjectKind().GroupVersionKind(); !gvk.Empty() && out.GetObjectKind().GroupVersionKind().Empty() {
		out.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return out
}
