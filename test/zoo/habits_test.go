package zoo_test

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
func clusterScoped() habit {
	const label = "classes"
	className := func(namespace, item string) string { return namespace + "." + item }
	return habit{
		name: "cluster-scoped",
		build: func(p *program) error {
			_, err := p.add(kind{
				name: label, of: &schedulingv1.PriorityClass{}, label: label, watches: &corev1.ConfigMap{},
				mapped: func(_ context.Context, obj client.Object) []reconcile.Request {
					if obj.GetLabels()["zoo"] != label {
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
				if namespace != p.namespace {
					return reconcile.Result{}, nil // another test's
				}
				if err := p.GetClient().Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &item); err != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				return reconcile.Result{}, annotate(ctx, p.GetClient(), &class, value, item.Data[value])
			})
			return err
		},
		create: func(u user, i int) error {
			class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{
				Name: className(u.namespace, itemName(i)), Labels: map[string]string{"zoo": label},
			}}
			if err := u.Create(u.ctx, class); err != nil {
				return err
			}
			return u.Create(u.ctx, newItem(u, label, i))
		},
		change: changeItem,
		remove: func(u user, i int) error {
			if err := removeItem(u, i); err != nil {
				return err
			}
			return u.Delete(u.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{
				Name: className(u.namespace, itemName(i)),
			}})
		},
		wrong: func(u user, items map[int]int) (string, error) {
			for i, version := range items {
				var class schedulingv1.PriorityClass
				name := className(u.namespace, itemName(i))
				if err := u.Get(u.ctx, types.NamespacedName{Name: name}, &class); err != nil {
					return "", err
				}
				if got := class.Annotations[value]; got != strconv.Itoa(version) {
					return fmt.Sprintf("PriorityClass %s has value %q, want %d", name, got, version), nil
				}
			}
			return "", nil
		},
	}
}

// emptyNames notes the name of a child on the item. At first there is none, and the operator asks for the child of that
// name all the same.
func emptyNames() habit {
	const label, child = "names", "child"
	return habit{
		name: "empty-names",
		build: func(p *program) error {
			c := p.GetClient()
			_, err := p.add(kind{name: label, of: &corev1.ConfigMap{}, label: label, owns: []client.Object{&corev1.Secret{}}},
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
						made := newSecret(r.Namespace, label, name)
						if err = owned(&item, made, c); err == nil {
							err = c.Create(ctx, made)
						}
						if apierrors.IsAlreadyExists(err) {
							err = nil
						}
					}
					if err != nil {
						return reconcile.Result{}, err
					}
					return reconcile.Result{}, annotate(ctx, c, &item, child, name)
				})
			return err
		},
		create: createItem(label), change: changeItem, remove: removeItem,
		wrong: func(u user, items map[int]int) (string, error) {
			secrets, err := u.secrets(label)
			if err != nil {
				return "", err
			}
			if len(secrets) != len(items) {
				return fmt.Sprintf("there are %d children of %d items", len(secrets), len(items)), nil
			}
			return u.eachItem(items, func(item *corev1.ConfigMap, _ string) string {
				if name := item.Annotations[child]; name != "of-"+item.Name || secrets[name].Name == "" {
					return fmt.Sprintf("its child is %q", name)
				}
				return ""
			})
		},
	}
}

// finalizers has children with a finalizer, which the operator takes off when their owner is gone, as the Job
// controller does with Pods.
func finalizers() habit {
	const label, finalizer = "jobs", "zoo.example.com/tracking"
	return habit{
		name: "finalizers",
		build: func(p *program) error {
			c := p.GetClient()
			_, err := p.add(kind{name: label, of: &corev1.ConfigMap{}, label: label, owns: []client.Object{&corev1.Secret{}}},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					var item corev1.ConfigMap
					switch err := c.Get(ctx, r.NamespacedName, &item); {
					case err == nil:
						for k := range 2 {
							made := newSecret(r.Namespace, label, fmt.Sprintf("of-%s-%d", r.Name, k))
							made.Labels["owner"] = r.Name
							controllerutil.AddFinalizer(made, finalizer)
							if err := owned(&item, made, c); err != nil {
								return reconcile.Result{}, err
							}
							if err := c.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
								return reconcile.Result{}, err
							}
						}
						return reconcile.Result{}, nil
					case !apierrors.IsNotFound(err):
						return reconcile.Result{}, err
					}
					var children corev1.SecretList
					if err := c.List(ctx, &children, client.InNamespace(r.Namespace),
						client.MatchingLabels{"zoo": label, "owner": r.Name}); err != nil {
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
		create: createItem(label), change: changeItem, remove: removeItem,
		wrong: func(u user, items map[int]int) (string, error) {
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
func unsetSelectors() habit {
	const label, target = "policies", "targets"
	secretName := func(i int) string { return fmt.Sprintf("target-%d", i) }
	return habit{
		name: "unset-selectors",
		build: func(p *program) error {
			c := p.GetClient()
			if _, err := p.add(kind{name: target, of: &corev1.Secret{}, label: target},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					var secret corev1.Secret
					if err := c.Get(ctx, r.NamespacedName, &secret); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					return reconcile.Result{}, annotate(ctx, c, &secret, "seen", "yes")
				}); err != nil {
				return err
			}
			_, err := p.add(kind{name: label, of: &corev1.ConfigMap{}, label: label},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					var item corev1.ConfigMap
					if err := c.Get(ctx, r.NamespacedName, &item); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					var unset *metav1.LabelSelector
					if name := item.Annotations["selects"]; name != "" {
						unset = &metav1.LabelSelector{MatchLabels: map[string]string{"target": name}}
					}
					selector, err := metav1.LabelSelectorAsSelector(unset)
					if err != nil {
						return reconcile.Result{}, err
					}
					var selected corev1.SecretList
					if err := c.List(ctx, &selected, client.InNamespace(r.Namespace),
						client.MatchingLabelsSelector{Selector: selector}); err != nil {
						return reconcile.Result{}, err
					}
					if len(selected.Items) == 0 && unset != nil {
						return reconcile.Result{RequeueAfter: 200 * time.Millisecond}, nil
					}
					for i := range selected.Items {
						if err := annotate(ctx, c, &selected.Items[i], "by-"+r.Name, item.Data[value]); err != nil {
							return reconcile.Result{}, err
						}
					}
					return reconcile.Result{}, nil
				})
			return err
		},
		create: func(u user, i int) error {
			secret := newSecret(u.namespace, target, secretName(i))
			secret.Labels["target"] = secret.Name
			if err := u.Create(u.ctx, secret); err != nil {
				return err
			}
			item := newItem(u, label, i)
			if i%2 == 0 {
				item.Annotations = map[string]string{"selects": secret.Name}
			}
			return u.Create(u.ctx, item)
		},
		change: changeItem,
		remove: func(u user, i int) error {
			if err := removeItem(u, i); err != nil {
				return err
			}
			return u.Delete(u.ctx, newSecret(u.namespace, target, secretName(i)))
		},
		wrong: func(u user, items map[int]int) (string, error) {
			secrets, err := u.secrets(target)
			if err != nil {
				return "", err
			}
			for i, version := range items {
				secret := secrets[secretName(i)]
				want := map[string]string{"seen": "yes"}
				if i%2 == 0 {
					want["by-"+itemName(i)] = strconv.Itoa(version)
				}
				if fmt.Sprint(secret.Annotations) != fmt.Sprint(want) {
					return fmt.Sprintf("%s has annotations %v, want %v", secretName(i), secret.Annotations, want), nil
				}
			}
			return "", nil
		},
	}
}

// kinds decides by the kind that an object says it is of, as operators do that have namespaced and cluster-scoped stores
// behind one interface.
func kinds() habit {
	const label, store = "references", "stores"
	storeName := func(item string) string { return "store-of-" + item }
	return habit{
		name: "kinds",
		build: func(p *program) error {
			c := p.GetClient()
			if _, err := p.add(kind{name: store, of: &corev1.Secret{}, label: store},
				func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }); err != nil {
				return err
			}
			_, err := p.add(kind{name: label, of: &corev1.ConfigMap{}, label: label},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					var item corev1.ConfigMap
					var secret corev1.Secret
					if err := c.Get(ctx, r.NamespacedName, &item); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					key := types.NamespacedName{Namespace: r.Namespace, Name: storeName(r.Name)}
					if err := c.Get(ctx, key, &secret); err != nil {
						return reconcile.Result{}, err
					}
					kind := secret.GetObjectKind().GroupVersionKind().Kind
					return reconcile.Result{}, annotate(ctx, c, &item, "store", kind+"/"+item.Data[value])
				})
			return err
		},
		create: func(u user, i int) error {
			if err := u.Create(u.ctx, newSecret(u.namespace, store, storeName(itemName(i)))); err != nil {
				return err
			}
			return u.Create(u.ctx, newItem(u, label, i))
		},
		change: changeItem,
		remove: func(u user, i int) error {
			if err := removeItem(u, i); err != nil {
				return err
			}
			return u.Delete(u.ctx, newSecret(u.namespace, store, storeName(itemName(i))))
		},
		wrong: func(u user, items map[int]int) (string, error) {
			return u.eachItem(items, func(item *corev1.ConfigMap, version string) string {
				if got := item.Annotations["store"]; got != "Secret/"+version {
					return fmt.Sprintf("its store is %q, want Secret/%s", got, version)
				}
				return ""
			})
		},
	}
}

// polls asks by RequeueAfter for something that nothing watches.
func polls() habit {
	const label = "polls"
	answerName := func(item string) string { return "answer-for-" + item }
	return habit{
		name: "polls",
		build: func(p *program) error {
			_, err := p.add(kind{name: label, of: &corev1.ConfigMap{}, label: label},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					var item corev1.ConfigMap
					var answer corev1.Secret
					if err := p.GetClient().Get(ctx, r.NamespacedName, &item); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					key := types.NamespacedName{Namespace: r.Namespace, Name: answerName(r.Name)}
					if err := p.GetAPIReader().Get(ctx, key, &answer); err != nil {
						return reconcile.Result{}, err
					}
					return reconcile.Result{RequeueAfter: time.Second},
						annotate(ctx, p.GetClient(), &item, "answer", string(answer.Data[value]))
				})
			return err
		},
		create: func(u user, i int) error {
			answer := newSecret(u.namespace, "answers", answerName(itemName(i)))
			answer.Data = map[string][]byte{value: []byte("1")}
			if err := u.Create(u.ctx, answer); err != nil {
				return err
			}
			return u.Create(u.ctx, newItem(u, label, i))
		},
		change: func(u user, i, version int) error {
			answer := newSecret(u.namespace, "answers", answerName(itemName(i)))
			answer.Data = map[string][]byte{value: []byte(strconv.Itoa(version))}
			return u.Update(u.ctx, answer)
		},
		remove: removeItem,
		wrong: func(u user, items map[int]int) (string, error) {
			return u.eachItem(items, func(item *corev1.ConfigMap, version string) string {
				if got := item.Annotations["answer"]; got != version {
					return fmt.Sprintf("it has answer %q, want %s", got, version)
				}
				return ""
			})
		},
	}
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
				return annotate(ctx, b.client, &item, "batched", text)
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
func batches() habit {
	const label = "batches"
	return habit{
		name: "batches",
		build: func(p *program) error {
			b := &batcher{client: p.GetClient(), todo: map[types.NamespacedName]string{}}
			if err := p.Add(b); err != nil {
				return err
			}
			_, err := p.add(kind{name: label, of: &corev1.ConfigMap{}, label: label},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					var item corev1.ConfigMap
					if err := p.GetClient().Get(ctx, r.NamespacedName, &item); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					if item.Annotations["batched"] == item.Data[value] {
						return reconcile.Result{}, nil
					}
					b.put(r.NamespacedName, item.Data[value])
					return reconcile.Result{RequeueAfter: time.Second}, nil
				})
			return err
		},
		create: createItem(label), change: changeItem, remove: removeItem,
		wrong: func(u user, items map[int]int) (string, error) {
			return u.eachItem(items, func(item *corev1.ConfigMap, version string) string {
				if got := item.Annotations["batched"]; got != version {
					return fmt.Sprintf("%q was written by the batcher, want %s", got, version)
				}
				return ""
			})
		},
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

func (e *expected) forget(owner types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, owner)
}

func (e *expected) met(owner types.NamespacedName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pending[owner]) == 0
}

// expectations wants a number of children without names of their own, and counts those that its cache shows.
func expectations() habit {
	const label, tag = "sets", "tag"
	wanted := func(version string) int { n, _ := strconv.Atoi(version); return 1 + n%3 }
	return habit{
		name: "expectations",
		build: func(p *program) error {
			c := p.GetClient()
			e := &expected{pending: map[types.NamespacedName]map[string]bool{}}
			hear := func(obj client.Object) bool {
				if owner := metav1.GetControllerOf(obj); owner != nil {
					e.saw(types.NamespacedName{Namespace: obj.GetNamespace(), Name: owner.Name}, obj.GetLabels()[tag])
				}
				return true
			}
			_, err := p.add(kind{
				name: label, of: &corev1.ConfigMap{}, label: label, owns: []client.Object{&corev1.Secret{}},
				heard: predicate.Funcs{
					CreateFunc: func(ev event.CreateEvent) bool { return hear(ev.Object) },
					UpdateFunc: func(ev event.UpdateEvent) bool { return hear(ev.ObjectNew) },
					DeleteFunc: func(ev event.DeleteEvent) bool { return hear(ev.Object) },
				},
				reset: func(_ context.Context, r reconcile.Request) { e.forget(r.NamespacedName) },
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
					client.MatchingLabels{"zoo": label, "owner": r.Name}); err != nil {
					return reconcile.Result{}, err
				}
				for i := want; i < len(children.Items); i++ {
					if err := c.Delete(ctx, &children.Items[i]); client.IgnoreNotFound(err) != nil {
						return reconcile.Result{}, err
					}
				}
				for range want - len(children.Items) {
					made := newSecret(r.Namespace, label, "")
					made.GenerateName, made.Labels["owner"] = "of-"+r.Name+"-", r.Name
					if err := owned(&item, made, c); err != nil {
						return reconcile.Result{}, err
					}
					made.Labels[tag] = rand.String(8)
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
		create: createItem(label), change: changeItem, remove: removeItem,
		wrong: func(u user, items map[int]int) (string, error) {
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
func tracker() habit {
	const label, tracked = "trackers", "tracked"
	secretName := func(item string) string { return "tracked-by-" + item }
	return habit{
		name: "tracker",
		build: func(p *program) error {
			c := p.GetClient()
			if _, err := p.add(kind{name: tracked, of: &corev1.Secret{}, label: tracked},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					var secret corev1.Secret
					if err := c.Get(ctx, r.NamespacedName, &secret); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					return reconcile.Result{}, annotate(ctx, c, &secret, "seen", "yes")
				}); err != nil {
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
				toItem := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
					item, found := strings.CutPrefix(obj.GetName(), secretName(""))
					if !found {
						return nil
					}
					return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: item}}}
				})
				if err := self.Watch(source.Kind[client.Object](p.GetCache(), &corev1.Secret{}, toItem)); err != nil {
					return err
				}
				watched = true
				return nil
			}
			var err error
			self, err = p.add(kind{name: label, of: &corev1.ConfigMap{}, label: label},
				func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					if err := watch(); err != nil {
						return reconcile.Result{}, err
					}
					var item corev1.ConfigMap
					var secret corev1.Secret
					if err := c.Get(ctx, r.NamespacedName, &item); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					key := types.NamespacedName{Namespace: r.Namespace, Name: secretName(r.Name)}
					if err := c.Get(ctx, key, &secret); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					return reconcile.Result{}, annotate(ctx, c, &item, "tracked", string(secret.Data[value]))
				})
			return err
		},
		create: func(u user, i int) error {
			if err := u.Create(u.ctx, newItem(u, label, i)); err != nil {
				return err
			}
			secret := newSecret(u.namespace, tracked, secretName(itemName(i)))
			secret.Data = map[string][]byte{value: []byte("1")}
			return u.Create(u.ctx, secret)
		},
		change: func(u user, i, version int) error {
			secret := newSecret(u.namespace, tracked, secretName(itemName(i)))
			secret.Data = map[string][]byte{value: []byte(strconv.Itoa(version))}
			return u.Update(u.ctx, secret)
		},
		remove: func(u user, i int) error {
			if err := removeItem(u, i); err != nil {
				return err
			}
			return u.Delete(u.ctx, newSecret(u.namespace, tracked, secretName(itemName(i))))
		},
		wrong: func(u user, items map[int]int) (string, error) {
			return u.eachItem(items, func(item *corev1.ConfigMap, version string) string {
				if got := item.Annotations["tracked"]; got != version {
					return fmt.Sprintf("it tracked %q, want %s", got, version)
				}
				return ""
			})
		},
	}
}
