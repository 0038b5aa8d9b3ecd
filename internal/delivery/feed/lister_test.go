package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/sieve"
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// Pages hold many small objects, or few large ones, in whatever form these come.
func TestPagesFitTheObjects(t *testing.T) {
	typed := func(bytes int) runtime.Object {
		obj := configMap("a", "b", "c")
		obj.Data = map[string]string{"x": strings.Repeat("x", bytes)}
		return obj
	}
	untyped := func(bytes int) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b", "uid": "c"},
			"data": strings.Repeat("x", bytes),
		}}
	}
	for _, c := range []struct {
		bytes       int
		least, most int64
	}{{10, pageGrowth * 40, pageGrowth * 40}, {8000, 450, 550}, {200 << 10, 19, 20}, {1 << 20, 3, 4}, {8 << 20, 1, 1}} {
		for name, object := range map[string]func(int) runtime.Object{"typed": typed, "untyped": untyped} {
			s := newCommon(sharding.Options{Slots: 8})
			inf := NewInformer(s, configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
			if got := inf.Source.pageSize(); got != firstPage {
				t.Errorf("%d objects in the first page", got)
			}
			page := &corev1.List{}
			for range 40 {
				page.Items = append(page.Items, runtime.RawExtension{Object: object(c.bytes)})
			}
			inf.Source.measure(page, nil)
			if got := inf.Source.pageSize(); got < c.least || got > c.most {
				t.Errorf("%s objects of %d bytes: %d in a page, want %d to %d", name, c.bytes, got, c.least, c.most)
			}
		}
	}
}

// A page is bounded in bytes, and what stays of it is transformed before the next one is requested. Small objects come
// in few pages all the same.
func TestPagesAreBoundedInBytes(t *testing.T) {
	for _, c := range []struct{ objects, bytes, most, pages, again int }{
		{objects: 1000, bytes: 200 << 10, most: pageBytes, pages: 51, again: 50},
		{objects: 600, bytes: 1 << 20, most: firstPage << 20, pages: 196, again: 200},
		{objects: 10_000, bytes: 1 << 10, most: pageBytes, pages: 5, again: 3},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.objects, c.bytes), func(t *testing.T) {
			text, pages, largest, kept := strings.Repeat("x", c.bytes), 0, 0, 0
			inf := NewInformer(newCommon(sharding.Options{Slots: 8}), configMapKind, &cache.ListWatch{
				ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
					first, _ := strconv.Atoi(o.Continue)
					last := min(first+int(o.Limit), c.objects)
					page := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
					for i := first; i < last; i++ {
						obj := configMap("a", strconv.Itoa(i), strconv.Itoa(i))
						obj.ResourceVersion, obj.Data = "5", map[string]string{"x": text}
						page.Items = append(page.Items, *obj)
					}
					if last < c.objects {
						page.Continue = strconv.Itoa(last)
					}
					if kept != first {
						t.Errorf("page from %d on is requested when %d objects have been transformed", first, kept)
					}
					pages, largest = pages+1, max(largest, (last-first)*c.bytes)
					return page, nil
				},
			}, &corev1.ConfigMap{}, 0, nil)
			if err := inf.SetTransform(func(obj any) (any, error) {
				kept++
				obj.(*corev1.ConfigMap).Data = nil
				return obj, nil
			}); err != nil {
				t.Fatal(err)
			}
			s := inf.Source
			for _, want := range []int{c.pages, c.again} {
				pages, kept = 0, 0
				r := &relist{List: s.core.NewList(slot.Count(8).All())}
				o := sharding.Request{ListOptions: metav1.ListOptions{Limit: firstPage}}
				items, _, err := s.pages(t.Context(), r, o, func() bool { return true })
				require.NoError(t, err)
				if len(items) != c.objects || pages > want || largest > c.most {
					t.Errorf("%d objects in %d pages of up to %d bytes, want at most %d of %d", len(items), pages, largest, want,
						c.most)
				}
				for _, o := range items {
					if obj := o.Body.(*corev1.ConfigMap); obj.Data != nil || !unmarkTransformed(obj) {
						t.Fatalf("%s was not transformed", o.Name)
					}
				}
				largest, c.most = 0, pageBytes
			}
		})
	}
}

// Objects of 1 MiB come first by name, and many small ones last. The next list begins with a page that is bounded in
// bytes, whichever come.
func TestPagesRememberLargeObjects(t *testing.T) {
	s := newCommon(sharding.Options{Slots: 8})
	inf := NewInformer(s, configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	page := func(n int64, bytes int, rest string) runtime.Object {
		page := &corev1.List{ListMeta: metav1.ListMeta{Continue: rest}}
		for range n {
			obj := configMap("a", "b", "c")
			obj.Data = map[string]string{"x": strings.Repeat("x", bytes)}
			page.Items = append(page.Items, runtime.RawExtension{Object: obj})
		}
		return page
	}
	for large, small := int64(100), int64(2000); small > 0; {
		n := inf.Source.pageSize()
		bytes := 500
		if large > 0 {
			n, bytes = min(n, large), 1<<20
			large -= n
		} else {
			n = min(n, small)
			small -= n
		}
		rest := "more"
		if small == 0 {
			rest = ""
		}
		inf.Source.measure(page(n, bytes, rest), nil)
	}
	if n := inf.Source.pageSize(); n > 64 {
		t.Errorf("the next list begins with a page of %d objects, of which each may have 1 MiB", n)
	}
}

// A transport removes the objects of other slots from a list before it is decoded. Nothing else changes: what is kept,
// what is known of the others, and how large the next page is.
func TestOthersAreRemovedFromLists(t *testing.T) {
	for _, owned := range []bool{false, true} {
		t.Run(fmt.Sprintf("owned: %t", owned), func(t *testing.T) {
			want, decoded := listOfOthers(t, owned, false)
			if len(want.Kept) == 0 || want.Names != 40 || decoded != 40 || owned == (want.Received == 40) {
				t.Fatalf("without a transport: %+v, %d decoded", want, decoded)
			}
			got, decoded := listOfOthers(t, owned, true)
			require.Equal(t, "list", want, got)
			if decoded != len(want.Kept) {
				t.Errorf("%d decoded, of which %d are kept", decoded, len(want.Kept))
			}
		})
	}
}

// listed is what an informer has of a list.
type listed struct {
	Kept            []string
	Names, Received int
	Page            int64
}

// listOfOthers lists 40 objects of 20 KB, some of them in two slots of eight. If owned is true, the slots are their
// owners', and one object in four has no owner that counts. decoded is how many objects the client decoded.
func listOfOthers(t *testing.T, owned, sifts bool) (got listed, decoded int) {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for i := range 40 {
		obj := configMap("a", strconv.Itoa(i), strconv.Itoa(i))
		obj.ResourceVersion, obj.Data = "5", map[string]string{"x": strings.Repeat("x", 20_000)}
		if controls := true; owned && i%4 > 0 {
			obj.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: strconv.Itoa(i), Controller: &controls,
			}}
		}
		list.Items = append(list.Items, *obj)
	}
	text, err := json.Marshal(list)
	require.NoError(t, err)
	share := newCommon(sharding.Options{Slots: 8})
	if owned {
		share.Own(configMapKind, schema.GroupKind{Group: "apps", Kind: "Deployment"}, true)
	}
	inf := NewInformer(share, configMapKind, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			res := &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(bytes.NewReader(text)),
			}
			if sifts {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				sieve.Apply(req, res)
			}
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			page := &corev1.ConfigMapList{}
			require.NoError(t, json.Unmarshal(body, page))
			decoded = len(page.Items)
			return page, res.Body.Close()
		},
	}, &corev1.ConfigMap{}, 0, nil)
	if owned {
		inf.Role = share.Use(configMapKind, true)
	}
	s := inf.Source
	r := &relist{List: s.core.NewList(slot.SetOf(slot.Range{First: 2, Last: 3})), names: newNameSet()}
	o := sharding.Request{ListOptions: metav1.ListOptions{Limit: firstPage}}
	items, _, err := s.pages(t.Context(), r, o, func() bool { return true })
	require.NoError(t, err)
	for _, o := range items {
		got.Kept = append(got.Kept, o.Name.String())
	}
	for i := range list.Items {
		if r.names.has(stream.Name{Namespace: "a", Name: strconv.Itoa(i)}) {
			got.Names++
		}
	}
	got.Received, got.Page = int(s.received.Load()), s.pageSize()/10*10
	return got, decoded
}
