package delivery

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Lists come in pages, so that one page at a time is in memory. For each page, an API server that lists from its cache
// goes through all of the kind that remains. So pages of small objects are large.
const (
	firstPage = 1000
	leastPage = 500
	mostPage  = 5000
	// pageBytes is about how large a page should be.
	pageBytes = 4 << 20
	// pageSamples is how many objects of a page are looked at to know how large they are.
	pageSamples = 16
)

// pageSize is how many objects the next page should have, by the sizes of those that came before.
func (s *source) pageSize() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.page == 0 {
		return firstPage
	}
	return s.page
}

// eachListed calls a function for each object of a consistent list of everything that the informer selects. It lists a
// page at a time, with a pause between pages, and returns the list's version. The store is not changed.
func (s *source) eachListed(ctx context.Context, pause time.Duration, do func(runtime.Object) error) (
	version string, err error,
) {
	var o metav1.ListOptions
	for {
		o.Limit = s.pageSize()
		page, err := s.upstream.ListWithContext(ctx, o)
		if err != nil {
			return "", err
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return "", err
		}
		if err := meta.EachListItem(page, do); err != nil {
			return "", err
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return list.GetResourceVersion(), nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// sized notes the total size in bytes of some objects of a page.
func (s *source) sized(objects, bytes int) {
	if objects == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = min(max(int64(pageBytes*objects/max(1, bytes)), leastPage), mostPage)
}

// sizeOf returns about how many bytes an object takes in an answer.
func sizeOf(obj runtime.Object) int {
	if encoded, ok := obj.(interface{ Size() int }); ok {
		return encoded.Size() // as protobuf
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return pageBytes / leastPage
	}
	return len(text)
}
