package keeper

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rota-dev/rota/internal/dispatch/feed"
)

// versions is a kind that is served in one version at a time. As a mapper it caches that until it is reset.
type versions struct {
	meta.RESTMapper

	mu             sync.Mutex
	served, cached string // cached "": not asked yet
	watches        []string
	last           *watch.FakeWatcher
}

func (v *versions) Reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached = ""
}

func (v *versions) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cached == "" {
		v.cached = v.served
	}
	if v.cached == "" {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return &meta.RESTMapping{Resource: schema.GroupVersionResource{Group: kind.Group, Version: v.cached, Resource: "sites"}},
		nil
}

// client serves no objects in the version that is served, and answers NotFound in all others.
func (v *versions) client() *fake.FakeMetadataClient {
	c := fake.NewSimpleMetadataClient(fake.NewTestScheme())
	refuse := func(a clienttesting.Action) error {
		if a.GetResource().Version != v.served {
			return apierrors.NewGenericServerResponse(404, a.GetVerb(), a.GetResource().GroupResource(), "", "", 0, true)
		}
		return nil
	}
	c.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return true, &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, refuse(a)
	})
	c.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		if err := refuse(a); err != nil {
			return true, nil, err
		}
		from := a.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion
		v.watches = append(v.watches, a.GetResource().Version+" from "+from)
		v.last = watch.NewFake()
		return true, v.last, nil
	})
	return c
}

// serve has the kind be served in another version, or in none, from now on. As an API server does, it ends watches.
func (v *versions) serve(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.served = version
	v.last.Stop()
}

func (v *versions) tell(name, resourceVersion string) {
	v.mu.Lock()
	w := v.last
	v.mu.Unlock()
	w.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: resourceVersion}})
}

// A kind whose version is not served any more is followed in the one that is, from where the last watch was. One that
// is not served at all for a while is listed again when it is.
func TestAVersionThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versions{served: "v1beta1"}
		s := &source{
			client: v.client(), mapper: &mapper{ResettableRESTMapper: v}, kind: schema.GroupKind{Group: "x.io", Kind: "Site"},
			log: logr.Discard(),
		}
		var mu sync.Mutex
		var told []string
		missed := 0
		f := feed.New(feed.Options{
			Name: "Site.x.io", Source: s,
			Event:  func(o metav1.Object, _ bool) { mu.Lock(); defer mu.Unlock(); told = append(told, o.GetName()) },
			Missed: func() { mu.Lock(); defer mu.Unlock(); missed++ },
		})
		var group sync.WaitGroup
		group.Go(func() { f.Run(t.Context()) })
		expect := func(when string, missings int, watches, names []string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(v.watches, watches) || !slices.Equal(told, names) || missed != missings || f.Err() != nil {
				t.Fatalf("%s: watches %q, want %q; told of %q, want %q; listed again %d times, want %d; error %v",
					when, v.watches, watches, told, names, missed, missings, f.Err())
			}
		}
		time.Sleep(time.Second)
		v.tell("a", "8")
		expect("at first", 0, []string{"v1beta1 from 7"}, []string{"a"})
		v.serve("v1")
		time.Sleep(resetPeriod + 5*time.Second)
		v.tell("b", "9")
		expect("in the next version", 0, []string{"v1beta1 from 7", "v1 from 8"}, []string{"a", "b"})
		v.serve("")
		time.Sleep(time.Hour)
		if served, err := f.List(t.Context(), nil); served || err != nil {
			t.Errorf("a kind that is not served is listed: served %v, error %v", served, err)
		}
		if !meta.IsNoMatchError(f.Err()) {
			t.Errorf("the error is %v: must say that the kind is not served", f.Err())
		}
		v.serve("v2")
		time.Sleep(time.Minute)
		expect("when it is back", 1, []string{"v1beta1 from 7", "v1 from 8", "v2 from 7"}, []string{"a", "b"})
		t.Cleanup(group.Wait)
	})
}
