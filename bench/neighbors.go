package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/test/stage"
)

const (
	// floodNamespace has the floodObjects that change floodRate times per second in a flood.
	floodNamespace = "flood"
	floodObjects   = 200
	floodRate      = 100
	// floodWork is how many bytes a reconcile of them hashes: some 10 ms of a core.
	floodWork = 10 << 20
	// answerKey is the annotation in which a controller repeats changeKey.
	answerKey = "bench.rota.dev/answer"
)

// neighbors are two controllers: one of Secrets, which are the main objects, and one of ConfigMaps, which may be
// flooded. Both repeat what an annotation says.
type neighbors struct{}

func (neighbors) kinds() []client.Object { return []client.Object{&corev1.Secret{}} }

func (n neighbors) fill(ctx context.Context, r *runner, mains int) error {
	if err := r.cluster.Create(ctx, stage.Namespace(floodNamespace)); err != nil {
		return err
	}
	c := r.cluster.Client
	if err := stage.Parallel(ctx, 0, mains, func(i int) error {
		_, err := n.create(ctx, c, client.ObjectKey{Namespace: r.cluster.Sites, Name: cluster.SiteName(i)}, 0)
		return err
	}); err != nil {
		return err
	}
	return stage.Parallel(ctx, 0, floodObjects, func(i int) error { return c.Create(ctx, n.other(i)) })
}

// other is an object of the other controller.
func (neighbors) other(i int) *corev1.ConfigMap {
	i %= floodObjects
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: floodNamespace, Name: cluster.SiteName(i)}}
}

func (neighbors) controllers(mgr manager.Manager, _ *operatorConfig) []controlled {
	c := mgr.GetClient()
	quiet := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, repeat(ctx, c, req, &corev1.Secret{})
	})
	flooded := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		if sha256.Sum256(make([]byte, floodWork)) == [sha256.Size]byte{} {
			return reconcile.Result{}, errors.New("there is no such sum") // so that it is computed
		}
		return reconcile.Result{}, repeat(ctx, c, req, &corev1.ConfigMap{})
	})
	within := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetNamespace() == floodNamespace })
	return []controlled{
		{stage.Controller{For: &corev1.Secret{}, Workers: stage.Concurrency}, quiet},
		{stage.Controller{
			For: &corev1.ConfigMap{}, Workers: stage.Concurrency, Events: []predicate.Predicate{within},
		}, flooded},
	}
}

// repeat has an object say in one annotation what another one says.
func repeat(ctx context.Context, c client.Client, req reconcile.Request, obj client.Object) error {
	if err := c.Get(ctx, req.NamespacedName, obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	want := obj.GetAnnotations()[changeKey]
	if obj.GetAnnotations()[answerKey] == want {
		return nil
	}
	return client.IgnoreNotFound(annotate(ctx, c, obj, answerKey, want))
}

func (neighbors) create(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (int64, error) {
	obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	metav1.SetMetaDataAnnotation(&obj.ObjectMeta, changeKey, strconv.FormatInt(n, 10))
	return n, c.Create(ctx, obj)
}

func (neighbors) change(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (int64, error) {
	obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	return n, annotate(ctx, c, obj, changeKey, strconv.FormatInt(n, 10))
}

func (neighbors) shows() client.Object { return &corev1.Secret{} }

func (neighbors) shown(obj client.Object) int64 {
	return numberIn(obj, answerKey)
}

// flood implements flooder.
func (n neighbors) flood(ctx context.Context, c client.Client) error {
	tick := time.NewTicker(time.Second / floodRate)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		another := strconv.FormatInt(time.Now().UnixNano(), 10)
		if err := annotate(ctx, c, n.other(i), changeKey, another); err != nil && ctx.Err() == nil {
			return fmt.Errorf("flood: %w", err)
		}
	}
}
