package rotatest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
)

// mine labels the objects of an operator of these tests: ConfigMaps, which own Secrets.
const mine = "rotatest.example.com/kind"

// operator is one of these tests.
type operator func(c client.Client) reconcile.Func

// setup is what the author of the operator passes to Run.
func (o operator) setup(mgr *ctrlrt.Manager) error {
	own := builder.WithPredicates(predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetLabels()[mine] != ""
	}))
	return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}, own).Owns(&corev1.Secret{}).Complete(o(mgr.GetClient()))
}

// items are ConfigMaps of a namespace.
func items(namespace string, n int) (all []client.Object) {
	for i := range n {
		all = append(all, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("item-%d", i), Labels: map[string]string{mine: "item"}},
			Data:       map[string]string{"value": strconv.Itoa(i)},
		})
	}
	return all
}

// edit changes the value of some items.
func edit(namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		for i := range 3 {
			cm := &corev1.ConfigMap{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("item-%d", i)}, cm); err != nil {
				return err
			}
			cm.Data["value"] = "changed"
			if err := c.Update(ctx, cm); err != nil {
				return err
			}
		}
		return nil
	}
}

// item gets the object of a request; nil: there is nothing to do.
func item(ctx context.Context, c client.Client, req ctrl.Request) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, req.NamespacedName, cm); err != nil || cm.DeletionTimestamp != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return cm, nil
}

// note writes an annotation of an item, if it differs.
func note(ctx context.Context, c client.Client, cm *corev1.ConfigMap, name, value string) error {
	if cm.Annotations[name] == value {
		return nil
	}
	if cm.Annotations == nil {
		cm.Annotations = map[string]string{}
	}
	cm.Annotations[name] = value
	return c.Update(ctx, cm)
}

func child(of *corev1.ConfigMap) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: of.Namespace, GenerateName: of.Name + "-",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: of.Name, UID: of.UID,
			Controller: ptr.To(true)}},
	}}
}

// retry takes conflicts for what they are: the cache was behind.
func retry(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// correct makes a child with a name that it knows before, and says so.
func correct(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil {
			return ctrl.Result{}, err
		}
		made := child(cm)
		made.GenerateName, made.Name = "", cm.Name+"-child"
		made.StringData = map[string]string{"of": cm.Name}
		if err := c.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, err
		}
		return retry(note(ctx, c, cm, "done", cm.Data["value"]))
	}
}

// forgetful makes a child with a generated name, and notes the name afterwards: what was created before a kill is
// created again.
func forgetful(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil || cm.Annotations["child"] != "" {
			return ctrl.Result{}, err
		}
		// Its cache may be behind, so it asks the API server what it has noted.
		var now corev1.ConfigMap
		if err := c.Get(ctx, req.NamespacedName, &now, ctrlrt.Live); err != nil || now.Annotations["child"] != "" {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		made := child(&now)
		if err := c.Create(ctx, made); err != nil {
			return ctrl.Result{}, err
		}
		return retry(note(ctx, c, &now, "child", made.Name))
	}
}

// totaling writes the number of all items into each of them, but it lists a share.
func totaling(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil {
			return ctrl.Result{}, err
		}
		var all corev1.ConfigMapList
		if err := c.List(ctx, &all, client.InNamespace(cm.Namespace), client.HasLabels{mine}); err != nil {
			return ctrl.Result{}, err
		}
		result, err := retry(note(ctx, c, cm, "total", strconv.Itoa(len(all.Items))))
		if result.RequeueAfter == 0 {
			result.RequeueAfter = 300 * time.Millisecond // others come and go
		}
		return result, err
	}
}

// remembering counts in memory which version of an item it has seen, and writes the number of versions.
func remembering(c client.Client) reconcile.Func {
	type memory struct {
		value    string
		versions int
	}
	var mu sync.Mutex
	seen := map[string]*memory{}
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil {
			mu.Lock()
			defer mu.Unlock()
			delete(seen, req.String())
			return ctrl.Result{}, err
		}
		mu.Lock()
		if seen[req.String()] == nil {
			seen[req.String()] = &memory{}
		}
		m := seen[req.String()]
		if m.value != cm.Data["value"] {
			m.value = cm.Data["value"]
			m.versions++
		}
		versions := m.versions
		mu.Unlock()
		return retry(note(ctx, c, cm, "versions", strconv.Itoa(versions)))
	}
}

// trusting makes a child if its cache shows none. It looks again a second later.
func trusting(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil {
			return ctrl.Result{}, err
		}
		var all corev1.SecretList
		if err := c.List(ctx, &all, client.InNamespace(cm.Namespace)); err != nil {
			return ctrl.Result{}, err
		}
		for i := range all.Items {
			if metav1.IsControlledBy(&all.Items[i], cm) {
				return ctrl.Result{}, nil
			}
		}
		if err := c.Create(ctx, child(cm)); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: 250 * time.Millisecond}, nil
	}
}

// tidy makes a child with a known name, and deletes children that their items have not known for a while. Its cache may
// be behind for longer, and then it deletes what it has made.
func tidy(c client.Client) reconcile.Func {
	const while = 150 * time.Millisecond
	var unknown sync.Map
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil {
			return ctrl.Result{}, err
		}
		made := child(cm)
		made.GenerateName, made.Name = "", cm.Name+"-data"
		var there corev1.Secret
		switch err := c.Get(ctx, client.ObjectKeyFromObject(made), &there); {
		case apierrors.IsNotFound(err):
			err = client.IgnoreAlreadyExists(c.Create(ctx, made))
			if err != nil {
				return ctrl.Result{}, err
			}
		case err != nil:
			return ctrl.Result{}, err
		case cm.Annotations["child"] != made.Name:
			if _, before := unknown.LoadOrStore(there.UID, true); !before {
				return ctrl.Result{RequeueAfter: while}, nil
			}
			return ctrl.Result{RequeueAfter: while}, client.IgnoreNotFound(c.Delete(ctx, &there))
		}
		return retry(note(ctx, c, cm, "child", made.Name))
	}
}

// replacer deletes and makes its child again whenever the value changes.
func replacer(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil {
			return ctrl.Result{}, err
		}
		made := child(cm)
		made.GenerateName, made.Name = "", cm.Name+"-job"
		made.StringData = map[string]string{"value": cm.Data["value"]}
		var there corev1.Secret
		err = c.Get(ctx, client.ObjectKeyFromObject(made), &there, ctrlrt.Live)
		if err == nil && string(there.Data["value"]) != cm.Data["value"] {
			if err := c.Delete(ctx, &there, client.Preconditions{UID: &there.UID}); err != nil {
				return retry(err)
			}
			return ctrl.Result{}, client.IgnoreAlreadyExists(c.Create(ctx, made))
		}
		if apierrors.IsNotFound(err) {
			err = client.IgnoreAlreadyExists(c.Create(ctx, made))
		}
		return ctrl.Result{}, err
	}
}

// restless writes each time that it runs.
func restless(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil {
			return ctrl.Result{}, err
		}
		return retry(note(ctx, c, cm, "at", time.Now().String()))
	}
}

// meddling writes into the next item, too, whoever has it.
func meddling(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil {
			return ctrl.Result{}, err
		}
		var next corev1.ConfigMap
		n, _ := strconv.Atoi(cm.Name[len("item-"):])
		key := client.ObjectKey{Namespace: cm.Namespace, Name: fmt.Sprintf("item-%d", (n+1)%6)}
		if err := c.Get(ctx, key, &next); err != nil {
			return ctrl.Result{}, err // it comes
		}
		return retry(note(ctx, c, &next, "after", cm.Name))
	}
}

// clinging adds a finalizer, and never removes it.
func clinging(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil || !controllerutil.AddFinalizer(cm, "rotatest.example.com/clinging") {
			return ctrl.Result{}, err
		}
		return retry(c.Update(ctx, cm))
	}
}

// idle does nothing.
func idle(client.Client) reconcile.Func {
	return func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
}

// rolling writes what is not the same twice.
func rolling(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		cm, err := item(ctx, c, req)
		if cm == nil || cm.Annotations["random"] != "" {
			return ctrl.Result{}, err
		}
		return retry(note(ctx, c, cm, "random", rand.String(8)))
	}
}
