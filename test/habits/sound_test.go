package habits

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// clusterScoped has a cluster-scoped kind, and a map function that names its objects with the namespace of what refers
// to them, as `client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.ClassName}` does.
func clusterScoped() Habit {
	const label = "classes"
	className := func(namespace, item string) string { return namespace + "." + item }
	h := Habit{Name: "cluster-scoped", label: label}
	h.Build = func(p *Process) error {
		_, err := p.add(kind{
			name: label, of: &schedulingv1.PriorityClass{}, label: label, watches: &corev1.ConfigMap{},
			mapped: func(_ context.Context, obj client.Object) []reconcile.Request {
				if obj.GetLabels()[Label] != label {
					return nil
				}
				return []reconcile.Request{{NamespacedName: types.NamespacedName{
					Namespace: obj.GetNamespace(), Name: className(obj.GetNamespace(), obj.GetName()),
				}}}
			},
		}, func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			var class schedulingv1.PriorityClass
			var item corev1.ConfigMap
			if err := p.GetClient().Get(ctx, r.NamespacedName, &class); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			namespace, name, _ := strings.Cut(class.Name, ".")
			if namespace != p.Namespace {
				return reconcile.Result{}, nil // another test's
			}
			if err := p.GetClient().Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &item); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			return reconcile.Result{}, Note(ctx, p.GetClient(), &class, value, item.Data[value])
		})
		return err
	}
	h.Wrong = func(u User, items map[int]int) (string, error) {
		for i, version := range items {
			var class schedulingv1.PriorityClass
			name := className(u.Namespace, itemName(i))
			if err := u.Get(u.Context, types.NamespacedName{Name: name}, &class); err != nil {
				return "", err
			}
			if got := class.Annotations[value]; got != strconv.Itoa(version) {
				return fmt.Sprintf("PriorityClass %s has value %q, want %d", name, got, version), nil
			}
		}
		return "", nil
	}
	return h.with(func(namespace string, i int) client.Object {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{
			Name: className(namespace, itemName(i)), Labels: map[string]string{Label: label},
		}}
	})
}

// emptyNames notes the name of a child on the item. At first there is none, and the operator asks for the child of that
// name all the same.
func emptyNames() Habit {
	const label, child = "names", "child"
	named := noted(child, func(item, _ string) string { return "of-" + item })
	return Habit{
		Name: "empty-names", label: label,
		Build: func(p *Process) error {
			c := p.GetClient()
			_, err := p.add(kind{name: label, label: label, owns: []client.Object{&corev1.Secret{}}},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					name := "of-" + r.Name
					var item corev1.ConfigMap
					if err := c.Get(ctx, r.NamespacedName, &item); err != nil {
						if apierrors.IsNotFound(err) {
							err = client.IgnoreNotFound(c.Delete(ctx, newSecret(r.Namespace, label, name)))
						}
						return reconcile.Result{}, err
					}
					var secret corev1.Secret
					err := c.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: item.Annotations[child]}, &secret)
					if apierrors.IsNotFound(err) {
						err = client.IgnoreAlreadyExists(c.Create(ctx, owned(&item, newSecret(r.Namespace, label, name))))
					}
					if err != nil {
						return reconcile.Result{}, err
					}
					return reconcile.Result{}, Note(ctx, c, &item, child, name)
				})
			return err
		},
		Wrong: func(u User, items map[int]int) (string, error) {
			secrets, err := u.secrets(label)
			if err != nil {
				return "", err
			}
			for i := range items {
				if secrets["of-"+itemName(i)].Name == "" || len(secrets) != len(items) {
					return fmt.Sprintf("%d children of %d items: %s may have none", len(secrets), len(items), itemName(i)), nil
				}
			}
			return named(u, items)
		},
	}
}

// finalizers has children with a finalizer, which the operator takes off when their owner is gone, as the Job
// controller does with Pods.
func finalizers() Habit {
	const label, finalizer = "jobs", "habits.example.com/tracking"
	return Habit{
		Name: "finalizers", label: label,
		Build: func(p *Process) error {
			c := p.GetClient()
			_, err := p.add(kind{name: label, label: label, owns: []client.Object{&corev1.Secret{}}},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					var item corev1.ConfigMap
					switch err := c.Get(ctx, r.NamespacedName, &item); {
					case err == nil:
						for k := range 2 {
							made := newSecret(r.Namespace, label, fmt.Sprintf("of-%s-%d", r.Name, k))
							made.Labels["owner"] = r.Name
							controllerutil.AddFinalizer(made, finalizer)
							if err := c.Create(ctx, owned(&item, made)); err != nil && !apierrors.IsAlreadyExists(err) {
								return reconcile.Result{}, err
							}
						}
						return reconcile.Result{}, nil
					case !apierrors.IsNotFound(err):
						return reconcile.Result{}, err
					}
					var children corev1.SecretList
					if err := c.List(ctx, &children, client.InNamespace(r.Namespace),
						client.MatchingLabels{Label: label, "owner": r.Name}); err != nil {
						return reconcile.Result{}, err
					}
					for i := range children.Items {
						child := &children.Items[i]
						before := child.DeepCopy()
						if controllerutil.RemoveFinalizer(child, finalizer) {
							if err := c.Patch(ctx, child, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
								return reconcile.Result{}, err
							}
						}
						if err := c.Delete(ctx, child); client.IgnoreNotFound(err) != nil {
							return reconcile.Result{}, err
						}
					}
					return reconcile.Result{}, nil
				})
			return err
		},
		Wrong: func(u User, items map[int]int) (string, error) {
			secrets, err := u.secrets(label)
			if err != nil {
				return "", err
			}
			for i := range items {
				for k := range 2 {
					if name := fmt.Sprintf("of-%s-%d", itemName(i), k); secrets[name].Name == "" {
						return fmt.Sprintf("there is no %s", name), nil
					}
				}
			}
			if len(secrets) != 2*len(items) {
				return fmt.Sprintf("there are %d children of %d items that need two each", len(secrets), len(items)), nil
			}
			return "", nil
		},
	}
}

// unsetSelectors has items that select objects of another kind, which another controller works on. Half of the items
// leave the selector unset: they select nothing. One that selects looks again until its cache shows the object.
func unsetSelectors() Habit {
	const label, target = "policies", "targets"
	secretName := func(i int) string { return fmt.Sprintf("target-%d", i) }
	h := Habit{Name: "unset-selectors", label: label, foreign: true}
	h.Build = func(p *Process) error {
		c := p.GetClient()
		if err := p.marks(target); err != nil {
			return err
		}
		_, err := p.items(kind{label: label}, func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
			var unset *metav1.LabelSelector
			if name := item.Annotations["selects"]; name != "" {
				unset = &metav1.LabelSelector{MatchLabels: map[string]string{"target": name}}
			}
			selector, err := metav1.LabelSelectorAsSelector(unset)
			if err != nil {
				return ctrl.Result{}, err
			}
			var selected corev1.SecretList
			if err := c.List(ctx, &selected, client.InNamespace(item.Namespace),
				client.MatchingLabelsSelector{Selector: selector}); err != nil {
				return ctrl.Result{}, err
			}
			if len(selected.Items) == 0 && unset != nil {
				return ctrl.Result{RequeueAfter: 200 * time.Millisecond}, nil
			}
			for i := range selected.Items {
				if err := Note(ctx, c, &selected.Items[i], "by-"+item.Name, item.Data[value]); err != nil {
					return ctrl.Result{}, err
				}
			}
			return ctrl.Result{}, nil
		})
		return err
	}
	h.Create = func(u User, i int) error {
		item := newItem(u.Namespace, label, i)
		if i%2 == 0 {
			item.Annotations = map[string]string{"selects": secretName(i)}
		}
		return u.Create(u.Context, item)
	}
	h.Wrong = func(u User, items map[int]int) (string, error) {
		secrets, err := u.secrets(target)
		if err != nil {
			return "", err
		}
		for i, version := range items {
			want := map[string]string{"seen": "yes"}
			if i%2 == 0 {
				want["by-"+itemName(i)] = strconv.Itoa(version)
			}
			if got := secrets[secretName(i)].Annotations; fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Sprintf("%s has annotations %v, want %v", secretName(i), got, want), nil
			}
		}
		return "", nil
	}
	return h.with(func(namespace string, i int) client.Object {
		secret := newSecret(namespace, target, secretName(i))
		secret.Labels["target"] = secret.Name
		return secret
	})
}

// kinds decides by the kind that an object says it is of, as operators do that have namespaced and cluster-scoped stores
// behind one interface.
func kinds() Habit {
	const label, store = "references", "stores"
	storeName := func(item string) string { return "store-of-" + item }
	return Habit{
		Name: "kinds", label: label,
		Build: func(p *Process) error {
			c := p.GetClient()
			if _, err := p.add(kind{name: store, of: &corev1.Secret{}, label: store},
				func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }); err != nil {
				return err
			}
			_, err := p.items(kind{label: label}, func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
				var secret corev1.Secret
				key := types.NamespacedName{Namespace: item.Namespace, Name: storeName(item.Name)}
				if err := c.Get(ctx, key, &secret); err != nil {
					return ctrl.Result{}, err
				}
				kind := secret.GetObjectKind().GroupVersionKind().Kind
				return ctrl.Result{}, Note(ctx, c, item, "store", kind+"/"+item.Data[value])
			})
			return err
		},
		Wrong: noted("store", func(_, version string) string { return "Secret/" + version }),
	}.with(func(namespace string, i int) client.Object {
		return newSecret(namespace, store, storeName(itemName(i)))
	})
}

// polls asks by RequeueAfter for something that nothing watches.
func polls() Habit {
	const label = "polls"
	answer := func(namespace string, item string, version int) *corev1.Secret {
		secret := newSecret(namespace, "answers", "answer-for-"+item)
		secret.Data = map[string][]byte{value: []byte(strconv.Itoa(version))}
		return secret
	}
	h := Habit{
		Name: "polls", label: label,
		Build: func(p *Process) error {
			_, err := p.items(kind{label: label}, func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
				there := answer(item.Namespace, item.Name, 0)
				if err := p.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(there), there); err != nil {
					return ctrl.Result{}, client.IgnoreNotFound(err)
				}
				return ctrl.Result{RequeueAfter: time.Second}, Note(ctx, p.GetClient(), item, "answer", string(there.Data[value]))
			})
			return err
		},
		Change: func(u User, i, version int) error {
			return u.Update(u.Context, answer(u.Namespace, itemName(i), version))
		},
		Wrong: noted("answer", version),
	}
	return h.with(func(namespace string, i int) client.Object { return answer(namespace, itemName(i), 1) })
}

// batcher writes for all reconcilers of its process, a few at a time and with a context of its own.
type batcher struct {
	client client.Client
	mu     sync.Mutex
	todo   map[types.NamespacedName]string
}

func (b *batcher) put(key types.NamespacedName, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.todo[key] = text
}

func (b *batcher) take() map[types.NamespacedName]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.todo
	b.todo = map[types.NamespacedName]string{}
	return all
}

// Start implements manager.Runnable.
func (b *batcher) Start(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		for key, text := range b.take() {
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				var item corev1.ConfigMap
				if err := b.client.Get(ctx, key, &item); err != nil {
					return client.IgnoreNotFound(err)
				}
				return Note(ctx, b.client, &item, "batched", text)
			})
			if err != nil && ctx.Err() == nil {
				b.put(key, text) // it will do it later, or whoever has the object then
			}
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: reconcilers of every replica use it.
func (*batcher) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = (*batcher)(nil)

// batches has its writes done by a batcher, and looks again until it sees them.
func batches() Habit {
	const label = "batches"
	return Habit{
		Name: "batches", label: label,
		Build: func(p *Process) error {
			b := &batcher{client: p.GetClient(), todo: map[types.NamespacedName]string{}}
			if err := p.Add(b); err != nil {
				return err
			}
			_, err := p.items(kind{label: label}, func(_ context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
				if item.Annotations["batched"] == item.Data[value] {
					return ctrl.Result{}, nil
				}
				b.put(client.ObjectKeyFromObject(item), item.Data[value])
				return ctrl.Result{RequeueAfter: time.Second}, nil
			})
			return err
		},
		Wrong: noted("batched", version),
	}
}

// expected has the children that an owner's last reconcile made and that no event has shown yet, as the ReplicaSet
// controller's expectations do. Nothing is made meanwhile. Their names are known only from answers, which may come after
// the event: each has a tag that is known before.
type expected struct {
	mu      sync.Mutex
	pending map[types.NamespacedName]map[string]bool
}

func (e *expected) expect(owner types.NamespacedName, tag string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending[owner] == nil {
		e.pending[owner] = map[string]bool{}
	}
	e.pending[owner][tag] = true
}

func (e *expected) saw(owner types.NamespacedName, tag string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending[owner], tag)
}

func (e *expected) forget(_ context.Context, owner reconcile.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, owner.NamespacedName)
}

func (e *expected) met(owner types.NamespacedName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pending[owner]) == 0
}

// tag is the label of a child by which an expectation knows it.
const tag = "tag"

// hear is a predicate of events of children.
func (e *expected) hear() predicate.Predicate {
	hear := func(obj client.Object) bool {
		if owner := metav1.GetControllerOf(obj); owner != nil {
			e.saw(types.NamespacedName{Namespace: obj.GetNamespace(), Name: owner.Name}, obj.GetLabels()[tag])
		}
		return true
	}
	return predicate.Funcs{
		CreateFunc: func(ev event.CreateEvent) bool { return hear(ev.Object) },
		UpdateFunc: func(ev event.UpdateEvent) bool { return hear(ev.ObjectNew) },
		DeleteFunc: func(ev event.DeleteEvent) bool { return hear(ev.Object) },
	}
}

// expectations wants a number of children without names of their own, and counts those that its cache shows.
func expectations() Habit {
	const label = "sets"
	wanted := func(version string) int { n, _ := strconv.Atoi(version); return 1 + n%3 }
	return Habit{
		Name: "expectations", label: label,
		Build: func(p *Process) error {
			c := p.GetClient()
			e := &expected{pending: map[types.NamespacedName]map[string]bool{}}
			_, err := p.add(kind{
				name: label, label: label, owns: []client.Object{&corev1.Secret{}}, heard: e.hear(), reset: e.forget,
			}, func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				if !e.met(r.NamespacedName) {
					return reconcile.Result{}, nil
				}
				want := 0
				var item corev1.ConfigMap
				if err := c.Get(ctx, r.NamespacedName, &item); client.IgnoreNotFound(err) != nil {
					return reconcile.Result{}, err
				} else if err == nil {
					want = wanted(item.Data[value])
				}
				var children corev1.SecretList
				if err := c.List(ctx, &children, client.InNamespace(r.Namespace),
					client.MatchingLabels{Label: label, "owner": r.Name}); err != nil {
					return reconcile.Result{}, err
				}
				for i := want; i < len(children.Items); i++ {
					if err := c.Delete(ctx, &children.Items[i]); client.IgnoreNotFound(err) != nil {
						return reconcile.Result{}, err
					}
				}
				for range want - len(children.Items) {
					made := owned(&item, newSecret(r.Namespace, label, ""))
					made.GenerateName, made.Labels["owner"], made.Labels[tag] = "of-"+r.Name+"-", r.Name, rand.String(8)
					e.expect(r.NamespacedName, made.Labels[tag])
					if err := c.Create(ctx, made); err != nil {
						e.saw(r.NamespacedName, made.Labels[tag])
						return reconcile.Result{}, err
					}
				}
				return reconcile.Result{}, nil
			})
			return err
		},
		Wrong: func(u User, items map[int]int) (string, error) {
			secrets, err := u.secrets(label)
			if err != nil {
				return "", err
			}
			count := map[string]int{}
			for _, s := range secrets {
				count[s.Labels["owner"]]++
			}
			for i, version := range items {
				if got, want := count[itemName(i)], wanted(strconv.Itoa(version)); got != want {
					return fmt.Sprintf("%s has %d children, want %d", itemName(i), got, want), nil
				}
				delete(count, itemName(i))
			}
			if len(count) > 0 {
				return fmt.Sprintf("children of items that are gone: %v", count), nil
			}
			return "", nil
		},
	}
}

// tracker watches a kind as soon as an item names it, from within a reconcile, as Cluster API's ObjectTracker does. The
// kind is one that another controller of the operator works on.
func tracker() Habit {
	const label, tracked = "trackers", "tracked"
	secretName := func(item string) string { return "tracked-by-" + item }
	secretOf := func(u User, i, version int) *corev1.Secret {
		secret := newSecret(u.Namespace, tracked, secretName(itemName(i)))
		secret.Data = map[string][]byte{value: []byte(strconv.Itoa(version))}
		return secret
	}
	toItem := func(_ context.Context, obj client.Object) []reconcile.Request {
		item, found := strings.CutPrefix(obj.GetName(), secretName(""))
		if !found {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: item}}}
	}
	return Habit{
		Name: "tracker", label: label,
		Build: func(p *Process) error {
			if err := p.marks(tracked); err != nil {
				return err
			}
			var once sync.Mutex
			watched := false
			var self controller.Controller
			watch := func() error {
				once.Lock()
				defer once.Unlock()
				if watched {
					return nil
				}
				toItem := handler.EnqueueRequestsFromMapFunc(toItem)
				err := self.Watch(source.Kind[client.Object](p.GetCache(), &corev1.Secret{}, toItem))
				watched = err == nil
				return err
			}
			var err error
			self, err = p.items(kind{label: label}, func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
				if err := watch(); err != nil {
					return ctrl.Result{}, err
				}
				var secret corev1.Secret
				key := types.NamespacedName{Namespace: item.Namespace, Name: secretName(item.Name)}
				if err := p.GetClient().Get(ctx, key, &secret); err != nil {
					return ctrl.Result{}, client.IgnoreNotFound(err)
				}
				return ctrl.Result{}, Note(ctx, p.GetClient(), item, "tracked", string(secret.Data[value]))
			})
			return err
		},
		Create: func(u User, i int) error {
			if err := u.Create(u.Context, newItem(u.Namespace, label, i)); err != nil {
				return err
			}
			return u.Create(u.Context, secretOf(u, i, 1))
		},
		Change: func(u User, i, version int) error { return u.Update(u.Context, secretOf(u, i, version)) },
		Remove: func(u User, i int) error {
			if err := removeItem(u, i); err != nil {
				return err
			}
			return u.Delete(u.Context, secretOf(u, i, 1))
		},
		Wrong: noted("tracked", version),
	}
}
