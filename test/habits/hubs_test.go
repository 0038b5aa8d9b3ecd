package habits

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
)

// spoke is a namespace of a cluster in which an operator of the hub has children.
type spoke struct {
	config    *rest.Config
	namespace string
}

// connection is what one process has to a spoke: a cluster with a plain cache, and a client for what reconciles write.
type connection struct {
	cluster.Cluster
	writer    client.Client
	namespace string
}

func (p *Process) connect(s spoke) (connection, error) {
	cfg := p.Plug(s.config)
	c, err := cluster.New(cfg, func(o *cluster.Options) {
		o.Logger, o.Cache.DefaultNamespaces = p.GetLogger(), map[string]cache.Config{s.namespace: {}}
	})
	if err != nil {
		return connection{}, err
	}
	if mgr, sharded := p.Manager.(*ctrlrt.Manager); sharded {
		cfg = mgr.Rota().WrapConfig(cfg)
	}
	w, err := client.New(cfg, client.Options{})
	if err != nil {
		return connection{}, err
	}
	return connection{c, w, s.namespace}, p.Add(c)
}

// lives asks the API server whether an item is there, and not about to go.
func (p *Process) lives(ctx context.Context, item *corev1.ConfigMap) (bool, error) {
	var live corev1.ConfigMap
	err := p.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(item), &live)
	return err == nil && live.UID == item.UID && live.DeletionTimestamp.IsZero(), client.IgnoreNotFound(err)
}

// hubs has items that name the cluster in which their child is, as managers of many clusters do. One spoke is the hub
// itself by another name, the other one is a cluster of its own. No owner reference leads from there to the hub: labels
// do, and the item waits with a finalizer until its child is gone. An item also has a child in the hub, of the same
// kind.
func hubs(t *testing.T) Habit {
	// Once in nine lives, on a busy machine, the stock operator ended with a child and a token more than items. It did
	// not look whether an item of its cache is still there. That it does now has not been shown on such a machine.
	if os.Getenv("SLOW") == "" {
		t.Skip("only with SLOW=1: make check WHAT=slow")
	}
	hub, other := controlplane.For(t), controlplane.New(t, controlplane.Options{})
	return hubOf(t, spoke{hub.Config(), hub.Namespace(t)}, spoke{other.Config(), other.Namespace(t)})
}

func hubOf(t *testing.T, spokes ...spoke) Habit {
	const label, finalizer = "hubs", "habits.example.com/spoke"
	var users []User // of the spokes
	for _, s := range spokes {
		c, err := client.New(s.config, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, User{t.Context(), c, s.namespace})
	}
	of := func(i int) int { return i % len(spokes) }
	childName := func(item string) string { return "of-" + item }
	return Habit{
		Name: "hubs", label: label,
		Build: func(p *Process) error {
			c := p.GetClient()
			k := kind{label: label, owns: []client.Object{&corev1.Secret{}}}
			toItem := func(_ context.Context, child *corev1.Secret) []reconcile.Request {
				if child.Labels[Label] != label {
					return nil
				}
				return []reconcile.Request{{NamespacedName: types.NamespacedName{
					Namespace: p.Namespace, Name: child.Labels["item"],
				}}}
			}
			connections := map[string]connection{}
			for i, s := range spokes {
				there, err := p.connect(s)
				if err != nil {
					return err
				}
				connections[strconv.Itoa(i)] = there
				k.sources = append(k.sources, source.Kind(there.GetCache(), &corev1.Secret{},
					handler.TypedEnqueueRequestsFromMapFunc(toItem)))
			}
			_, err := p.items(k, func(ctx context.Context, item *corev1.ConfigMap) (reconcile.Result, error) {
				there, mine := connections[item.Labels["spoke"]]
				if !mine { // nobody asks predicates when a slot comes to a controller with raw sources
					return reconcile.Result{}, nil
				}
				token := newSecret(item.Namespace, label, "token-of-"+item.Name)
				child := newSecret(there.namespace, label, childName(item.Name))
				child.Labels["item"], child.Data = item.Name, map[string][]byte{value: []byte(item.Data[value])}
				if !item.DeletionTimestamp.IsZero() {
					if err := c.Delete(ctx, token); client.IgnoreNotFound(err) != nil {
						return reconcile.Result{}, err
					}
					// The cache may not show a child that another process has made a moment ago: the spoke itself tells.
					// Nor is there an event then of its end: so the item comes again.
					if err := there.writer.Delete(ctx, child); !apierrors.IsNotFound(err) {
						return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, err
					}
					if controllerutil.RemoveFinalizer(item, finalizer) {
						return reconcile.Result{}, client.IgnoreNotFound(c.Update(ctx, item))
					}
					return reconcile.Result{}, nil
				}
				// The cache of one that has just begun may still show an item that the one before has let go, and nobody would
				// take away what is made for that.
				if live, err := p.lives(ctx, item); err != nil || !live {
					return reconcile.Result{}, err
				}
				if controllerutil.AddFinalizer(item, finalizer) {
					if err := c.Update(ctx, item); err != nil {
						return reconcile.Result{}, err
					}
				}
				if err := c.Create(ctx, owned(item, token)); err != nil && !apierrors.IsAlreadyExists(err) {
					return reconcile.Result{}, err
				}
				var seen corev1.Secret
				err := there.GetCache().Get(ctx, client.ObjectKeyFromObject(child), &seen)
				switch {
				case apierrors.IsNotFound(err):
					if err = there.writer.Create(ctx, child); apierrors.IsAlreadyExists(err) {
						err = nil // its event comes
					}
					return reconcile.Result{}, err
				case err == nil && string(seen.Data[value]) != item.Data[value]:
					seen.Data = child.Data
					return reconcile.Result{}, there.writer.Update(ctx, &seen)
				case err != nil:
					return reconcile.Result{}, err
				}
				return reconcile.Result{}, Note(ctx, c, item, "applied", string(seen.Data[value]))
			})
			return err
		},
		Create: func(u User, i int) error {
			item := newItem(u.Namespace, label, i)
			item.Labels["spoke"] = strconv.Itoa(of(i))
			return u.Create(u.Context, item)
		},
		// Every other change comes with a child that somebody deletes in the spoke.
		Change: func(u User, i, version int) error {
			if err := changeItem(u, i, version); err != nil || version%2 == 1 {
				return err
			}
			there := users[of(i)]
			return client.IgnoreNotFound(there.Delete(u.Context, newSecret(there.Namespace, label, childName(itemName(i)))))
		},
		Wrong: func(u User, items map[int]int) (string, error) {
			children := 0
			there := make([]map[string]corev1.Secret, len(users))
			for k, user := range users {
				var err error
				if there[k], err = user.secrets(label); err != nil {
					return "", err
				}
				children += len(there[k])
			}
			for i, version := range items {
				child := there[of(i)][childName(itemName(i))]
				if got := string(child.Data[value]); got != strconv.Itoa(version) {
					return fmt.Sprintf("the child of %s has value %q, want %d", itemName(i), got, version), nil
				}
			}
			tokens, err := u.secrets(label)
			if err != nil {
				return "", err
			}
			var all corev1.ConfigMapList
			if err := u.List(u.Context, &all, client.InNamespace(u.Namespace), client.MatchingLabels{Label: label}); err != nil {
				return "", err
			}
			if n := len(items); children != n || len(tokens) != n || len(all.Items) != n {
				return fmt.Sprintf("there are %d items, %d children in spokes and %d in the hub, want %d of each",
					len(all.Items), children, len(tokens), n), nil
			}
			return noted("applied", version)(u, items)
		},
	}
}
