package rig

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/judge"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// recorder keeps every version of what members write to: Websites, and the ConfigMaps of duties.
type recorder struct{ sites, duties *recording }

func newRecorder(c client.WithWatch, namespace string) *recorder {
	return &recorder{
		newRecording(c, namespace, func() client.ObjectList { return &webv1.WebsiteList{} }, func(o client.Object) string {
			return o.(*webv1.Website).Status.Checksum // nothing else is asked for
		}),
		newRecording(c, namespace, func() client.ObjectList { return &corev1.ConfigMapList{} }, func(o client.Object) string {
			return o.(*corev1.ConfigMap).Data[dutyField] // nothing else is asked for
		}),
	}
}

// run records until ctx ends.
func (r *recorder) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { r.sites.run(ctx) })
	both.Go(func() { r.duties.run(ctx) })
	both.Wait()
}

// take returns what came since it was called last, and how many gaps there are among it.
func (r *recorder) take() (sites, duties []judge.Recorded, gaps int) {
	sites, gaps = r.sites.take()
	duties, more := r.duties.take()
	return sites, duties, gaps + more
}

// recording watches a kind and keeps every version. If its watch breaks for so long that it has to list again, it
// counts a gap.
type recording struct {
	client    client.WithWatch
	namespace string
	kind      func() client.ObjectList
	// writer tells who wrote an object.
	writer func(client.Object) string

	mu       sync.Mutex
	position string // resourceVersion
	writers  map[string]string
	versions []judge.Recorded
	gaps     int
}

func newRecording(
	c client.WithWatch, namespace string, kind func() client.ObjectList, writer func(client.Object) string,
) *recording {
	return &recording{client: c, namespace: namespace, kind: kind, writer: writer, writers: map[string]string{}}
}

func (r *recording) run(ctx context.Context) {
	listed := false
	for ctx.Err() == nil {
		if r.position == "" {
			list := r.kind()
			if err := r.client.List(ctx, list, client.InNamespace(r.namespace)); err == nil {
				r.list(list, listed)
				listed = true
			}
		} else {
			r.follow(ctx)
		}
		_ = await.Sleep(ctx, 50*time.Millisecond) // the loop ends with ctx
	}
}

func (r *recording) list(list client.ObjectList, gap bool) {
	r.mu.Lock()
	r.position = list.GetResourceVersion()
	if gap {
		r.gaps++
	}
	r.mu.Unlock()
	_ = meta.EachListItem(list, func(o runtime.Object) error { // a list has items
		r.add(o.(client.Object)) // each is one
		return nil
	})
}

func (r *recording) follow(ctx context.Context) {
	opts := &client.ListOptions{
		Namespace: r.namespace, Raw: &metav1.ListOptions{ResourceVersion: r.position, AllowWatchBookmarks: true},
	}
	w, err := r.client.Watch(ctx, r.kind(), opts)
	if err != nil {
		r.broken(err)
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Error:
			r.broken(apierrors.FromObject(event.Object))
			return
		case watch.Bookmark, watch.Deleted:
		default:
			r.add(event.Object.(client.Object)) // nothing else is asked for
		}
		if o, ok := event.Object.(client.Object); ok {
			r.position = o.GetResourceVersion()
		}
	}
}

func (r *recording) broken(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		r.position = ""
	}
}

func (r *recording) add(o client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid, writer := string(o.GetUID()), r.writer(o)
	v := judge.Recorded{
		Site:   judge.Site{NamespacedName: client.ObjectKeyFromObject(o), UID: uid},
		Number: o.GetResourceVersion(), At: time.Now(),
	}
	if r.writers[uid] != writer {
		v.Process = judge.Writer(writer)
	}
	r.writers[uid] = writer
	r.versions = append(r.versions, v)
}

func (r *recording) take() ([]judge.Recorded, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	versions, gaps := r.versions, r.gaps
	r.versions, r.gaps = nil, 0
	return versions, gaps
}
