package chaos

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/chaos/oracle"
	"github.com/rota-dev/rota/internal/check"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// recorder watches all Websites and keeps every version. If its watch breaks for so long that it has to list again, it
// counts a gap.
type recorder struct {
	client client.WithWatch

	mu       sync.Mutex
	position string // resourceVersion
	statuses map[string]string
	versions []oracle.Version
	gaps     int
}

func newRecorder(c client.WithWatch) *recorder {
	return &recorder{client: c, statuses: map[string]string{}}
}

// run records until ctx ends.
func (r *recorder) run(ctx context.Context) {
	listed := false
	for ctx.Err() == nil {
		if r.position == "" {
			var list webv1.WebsiteList
			if err := r.client.List(ctx, &list, client.InNamespace(sitesNamespace)); err == nil {
				r.list(&list, listed)
				listed = true
			}
		} else {
			r.follow(ctx)
		}
		_ = await.Sleep(ctx, 50*time.Millisecond) // the loop ends with ctx
	}
}

func (r *recorder) list(list *webv1.WebsiteList, gap bool) {
	r.mu.Lock()
	r.position = list.ResourceVersion
	if gap {
		r.gaps++
	}
	r.mu.Unlock()
	for i := range list.Items {
		r.add(&list.Items[i])
	}
}

func (r *recorder) follow(ctx context.Context) {
	opts := &client.ListOptions{
		Namespace: sitesNamespace, Raw: &metav1.ListOptions{ResourceVersion: r.position, AllowWatchBookmarks: true},
	}
	w, err := r.client.Watch(ctx, &webv1.WebsiteList{}, opts)
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
			r.add(event.Object.(*webv1.Website)) // nothing else is asked for
		}
		if o, ok := event.Object.(client.Object); ok {
			r.position = o.GetResourceVersion()
		}
	}
}

func (r *recorder) broken(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		r.position = ""
	}
}

func (r *recorder) add(site *webv1.Website) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid, status := string(site.UID), site.Status.Checksum
	v := oracle.Version{
		Site:   check.Site{NamespacedName: client.ObjectKeyFromObject(site), UID: uid},
		Number: site.ResourceVersion, At: time.Now(),
	}
	if r.statuses[uid] != status {
		v.Process = oracle.Writer(status)
	}
	r.statuses[uid] = status
	r.versions = append(r.versions, v)
}

// take returns what came since it was called last, and how many gaps there are among it.
func (r *recorder) take() ([]oracle.Version, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	versions, gaps := r.versions, r.gaps
	r.versions, r.gaps = nil, 0
	return versions, gaps
}
