package footprint

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/journal"
)

const (
	// websiteBytes is the size of a Website in JSON, with its metadata and its status.
	websiteBytes = 2048
	// overhead is what of that is not content.
	overhead = 1325
	// writers is how many requests the load has in flight at most.
	writers = 16
)

// site returns a Website of websiteBytes, when its status has been written.
func site(namespace, name string) *webv1.Website {
	return &webv1.Website{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       webv1.WebsiteSpec{Title: "The website " + name, Content: letters(name, websiteBytes-overhead)},
	}
}

// letters returns n random hexadecimal digits in words, the same for the same seed: text that is compressed to
// about a half, as it goes over the wire where a response is compressed.
func letters(seed string, n int) string {
	var key [32]byte
	copy(key[:], seed)
	random := rand.New(rand.NewChaCha8(key))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%08x ", random.Uint32())
	}
	return b.String()[:n]
}

// siteName is the name of the i-th Website of sitesNamespace.
func siteName(i int) string { return fmt.Sprintf("site-%05d", i) }

// create makes Websites until there are n.
func (c *cluster) create(ctx context.Context, n int) error {
	err := parallel(ctx, c.sites, n, func(i int) error {
		obj := site(sitesNamespace, siteName(i))
		if err := stamp(c.client.Scheme(), obj); err != nil {
			return err
		}
		return c.client.Create(ctx, obj)
	})
	c.sites = n
	return err
}

// churn changes Websites at the rate, for a time, spread over all of them.
func (c *cluster) churn(ctx context.Context, rate float64, window time.Duration) error {
	n := int(rate * window.Seconds())
	step := time.Duration(float64(time.Second) / rate)
	begun := journal.Now()
	return parallel(ctx, 0, n, func(i int) error {
		if err := sleep(ctx, begun+time.Duration(i)*step-journal.Now()); err != nil {
			return err
		}
		// The stride has no factor in common with round numbers of Websites, so that each is changed once at first.
		name := siteName(i * 7919 % c.sites)
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"title": fmt.Sprintf("The website %s, change %d", name, begun.Milliseconds())}})
		if err != nil {
			return err
		}
		obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: sitesNamespace, Name: name}}
		return c.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
	})
}

// deleteAll deletes the objects of a list.
func (c *cluster) deleteAll(ctx context.Context, list client.ObjectList) error {
	var objs []client.Object
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		objs = append(objs, obj.(client.Object))
		return nil
	})
	if err != nil {
		return err
	}
	return parallel(ctx, 0, len(objs), func(i int) error { return client.IgnoreNotFound(c.client.Delete(ctx, objs[i])) })
}

// parallel calls do for the numbers from first to below end, some at a time. It returns the first error.
func parallel(ctx context.Context, first, end int, do func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := first; i < end && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// sleep waits for a time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
