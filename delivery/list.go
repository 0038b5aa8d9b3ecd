package delivery

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rota-dev/rota/internal/stream"
)

// errOvertaken says that everything was listed meanwhile.
var errOvertaken = errors.New("overtaken by another list")

// list returns the objects of a task's slots at a version, consistently. The version is "" if the API server does not
// serve the kind. It tries again until it succeeds; ok is false if ctx ends or a list of everything overtakes the task.
//
// strays are those of the objects that the watch may not report on.
func (s *source) list(ctx context.Context,
	t stream.Task,
) (items []runtime.Object, strays []stream.Object, version string, ok bool) {
	paged, backoff := true, firstBackoff
	for {
		items, strays, version, err := s.listOnce(ctx, t, paged)
		switch {
		case ctx.Err() != nil, errors.Is(err, errOvertaken):
			return nil, nil, "", false
		case s.answeredList(err):
			return nil, nil, "", true
		case err == nil:
			return items, strays, version, true
		case paged && apierrors.IsResourceExpired(err):
			paged = false // the version expired before the last page was read
			continue
		}
		s.inf.share.log.V(1).Info("Cannot list slots on their way here, trying again", "kind", s.inf.kind.String(), "error",
			err.Error(), "in", backoff.String())
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

func (s *source) listOnce(ctx context.Context, t stream.Task,
	paged bool,
) (items []runtime.Object, strays []stream.Object, version string, err error) {
	o := metav1.ListOptions{}
	asked := s.scope.narrow(&o, t.Set)
	s.mu.Lock()
	r := &relist{List: s.core.NewList(s.inf.withOrphans(t.Set))}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		overtaken := !s.core.Valid(t)
		s.mu.Unlock()
		if overtaken {
			return nil, nil, "", errOvertaken
		}
		if paged {
			o.Limit = s.pageSize()
		}
		page, err := s.upstream.ListWithContext(ctx, o)
		if err != nil {
			return nil, nil, "", err
		}
		kept, about, err := s.sift(page, r, asked)
		if err != nil {
			return nil, nil, "", err
		}
		for _, obj := range kept {
			items = append(items, s.detach(obj))
		}
		if o.Continue = about.GetContinue(); o.Continue != "" {
			continue
		}
		version := about.GetResourceVersion()
		found, err := s.verify(ctx, t.Carried, r.Listed, version)
		if err != nil {
			return nil, nil, "", err
		}
		for _, o := range found {
			items = append(items, o.Body.(runtime.Object).DeepCopyObject())
		}
		return items, append(r.Strays(), found...), version, nil
	}
}

// detach copies an item out of its list, so that the list's memory can be freed, and fills in its kind for an event.
func (s *source) detach(obj runtime.Object) runtime.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	out := to.Interface().(runtime.Object)
	gvk := s.inf.mark.example.GetObjectKind().GroupVersionKind()
	if !gvk.Empty() && out.GetObjectKind().GroupVersionKind().Empty() {
		out.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return out
}
