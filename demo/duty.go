package demo

import (
	"context"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/test/rig/journal"
)

const (
	// dutyNamespace is in the journal what tells a run of a duty from a reconcile.
	dutyNamespace = "duty"
	// dutyPeriod is the time between two writes of a duty.
	dutyPeriod = 500 * time.Millisecond
)

// dutyNames are the duties of the operator. Each keeps a ConfigMap of its name current: one with how many Websites
// there are, the other with how many pages.
var dutyNames = []string{"pages", "websites"}

// declareDuties declares the duties of a replica. Each run is journaled like a reconcile.
func (c *operatorConfig) declareDuties(r *rota.Rota, kube client.Client, live client.Reader, w *journal.Writer) error {
	counts := map[string]func(context.Context) (int, error){
		"pages": func(context.Context) (int, error) {
			files, err := os.ReadDir(c.Pages)
			return len(files), err
		},
		"websites": func(ctx context.Context) (int, error) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(webv1.GroupVersion.WithKind("WebsiteList"))
			err := live.List(ctx, list)
			return len(list.Items), err
		},
	}
	for _, name := range dutyNames {
		err := r.Duty(name, func(ctx context.Context) error {
			epoch, _ := gate.EpochFrom(ctx)
			_, end := w.Start(journal.Now(), types.NamespacedName{Namespace: dutyNamespace, Name: name}, name, 0, epoch)
			defer end()
			for {
				n, err := counts[name](ctx)
				if err == nil {
					err = keepCount(ctx, kube, name, n)
				}
				if err != nil && ctx.Err() == nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(dutyPeriod):
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keepCount writes a number to a ConfigMap.
func keepCount(ctx context.Context, kube client.Client, name string, n int) error {
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name + "-" + name},
		Data:       map[string]string{"count": strconv.Itoa(n)},
	}
	err := kube.Update(ctx, obj) // without a resourceVersion: only the owner of the duty may write
	if apierrors.IsNotFound(err) {
		err = kube.Create(ctx, obj)
	}
	return err
}
