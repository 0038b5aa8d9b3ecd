package habits

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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/rota-dev/rota/ctrlrt"
)

// Mistake is an operator with a bug that a test with one member does not find.
type Mistake struct {
	Name     string
	Operator Operator
	Fault    string   // of rotatest that finds it. Without one, two members do not, unless sharing is the fault
	Says     []string // is in rotatest's report
}

// Mistakes returns the operators that rotatest has to find. The first takes the least time.
func Mistakes() []Mistake {
	return []Mistake{
		{"what was not noted is created again", forgetful, "kill",
			[]string{"-<generated 2> is one too many", "was killed after: create secrets"}},
		{"a share is taken for all", Totaling, "share",
			[]string{`metadata.annotations.total: -"6" +"`, "List by a controller of the kind that it is For"}},
		{"memory is lost", remembering, "moves", []string{`metadata.annotations.versions: -"2" +"1"`}},
		{"what is not known yet is made again", Tidy, "lag", []string{"-data was deleted and made again ",
			"with one member 0 times: delete secrets ", ", and then create secrets "}},
		{"a cache that is behind is trusted", trusting, "lag", []string{"<generated 2> is one too many"}},
	}
}

// update sets an annotation, if it is not so already, and takes conflicts for what they are: the cache was behind.
func update(ctx context.Context, c client.Client, item *corev1.ConfigMap, key, text string) (ctrl.Result, error) {
	if item.Annotations[key] == text {
		return ctrl.Result{}, nil
	}
	metav1.SetMetaDataAnnotation(&item.ObjectMeta, key, text)
	return again(c.Update(ctx, item))
}

func again(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// Correct makes a child with a name that it knows before, and notes it. It makes no mistake.
func Correct(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		made := Child(item, item.Name+"-child")
		made.StringData = map[string]string{"of": item.Name}
		if err := c.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, err
		}
		return update(ctx, c, item, "done", item.Data[value])
	}
}

// forgetful makes a child with a generated name, and notes the name afterwards: what was created before a kill is
// created again.
func forgetful(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		if item.Annotations["child"] != "" {
			return ctrl.Result{}, nil
		}
		// Its cache may be behind, so it asks the API server what it has noted.
		var now corev1.ConfigMap
		err := c.Get(ctx, client.ObjectKeyFromObject(item), &now, ctrlrt.Live)
		if err != nil || now.Annotations["child"] != "" {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		made := Child(&now, "")
		if err := c.Create(ctx, made); err != nil {
			return ctrl.Result{}, err
		}
		return update(ctx, c, &now, "child", made.Name)
	}
}

// Totaling writes the number of all items into each of them, but it lists a share.
func Totaling(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		var all corev1.ConfigMapList
		if err := c.List(ctx, &all, client.InNamespace(item.Namespace), client.HasLabels{Label}); err != nil {
			return ctrl.Result{}, err
		}
		result, err := update(ctx, c, item, "total", strconv.Itoa(len(all.Items)))
		if result.RequeueAfter == 0 {
			result.RequeueAfter = 300 * time.Millisecond // others come and go
		}
		return result, err
	}
}

// remembering counts in memory which versions of an item it has seen, and writes the number of versions.
func remembering(c client.Client) Reconcile {
	type memory struct {
		value    string
		versions int
	}
	var mu sync.Mutex
	seen := map[client.ObjectKey]memory{}
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		mu.Lock()
		m := seen[client.ObjectKeyFromObject(item)]
		if m.value != item.Data[value] {
			m = memory{item.Data[value], m.versions + 1}
		}
		seen[client.ObjectKeyFromObject(item)] = m
		mu.Unlock()
		return update(ctx, c, item, "versions", strconv.Itoa(m.versions))
	}
}

// trusting makes a child if its cache shows none. It looks again a moment later.
func trusting(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		var all corev1.SecretList
		if err := c.List(ctx, &all, client.InNamespace(item.Namespace)); err != nil {
			return ctrl.Result{}, err
		}
		for i := range all.Items {
			if metav1.IsControlledBy(&all.Items[i], item) {
				return ctrl.Result{}, nil
			}
		}
		return ctrl.Result{RequeueAfter: 250 * time.Millisecond}, c.Create(ctx, Child(item, ""))
	}
}

// Tidy makes a child with a known name, and deletes children that their items have not known for a while. Its cache may
// be behind for longer, and then it deletes what it has made.
func Tidy(c client.Client) Reconcile {
	const while = 150 * time.Millisecond
	var unknown sync.Map
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		made := Child(item, item.Name+"-data")
		var there corev1.Secret
		switch err := c.Get(ctx, client.ObjectKeyFromObject(made), &there); {
		case apierrors.IsNotFound(err):
			if err := client.IgnoreAlreadyExists(c.Create(ctx, made)); err != nil {
				return ctrl.Result{}, err
			}
		case err != nil:
			return ctrl.Result{}, err
		case item.Annotations["child"] != made.Name:
			if _, before := unknown.LoadOrStore(there.UID, true); !before {
				return ctrl.Result{RequeueAfter: while}, nil
			}
			return ctrl.Result{RequeueAfter: while}, client.IgnoreNotFound(c.Delete(ctx, &there))
		}
		return update(ctx, c, item, "child", made.Name)
	}
}

// Replacing deletes and makes its child again whenever the value changes. That is no mistake: it does so with one
// member, too.
func Replacing(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		made := Child(item, item.Name+"-job")
		made.StringData = map[string]string{value: item.Data[value]}
		var there corev1.Secret
		err := c.Get(ctx, client.ObjectKeyFromObject(made), &there, ctrlrt.Live)
		if err == nil && string(there.Data[value]) != item.Data[value] {
			if err := c.Delete(ctx, &there, client.Preconditions{UID: &there.UID}); err != nil {
				return again(err)
			}
			return ctrl.Result{}, client.IgnoreAlreadyExists(c.Create(ctx, made))
		}
		if apierrors.IsNotFound(err) {
			err = client.IgnoreAlreadyExists(c.Create(ctx, made))
		}
		return ctrl.Result{}, err
	}
}

// Restless writes each time that it runs.
func Restless(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		return update(ctx, c, item, "at", time.Now().String())
	}
}

// Meddling writes into the next of six items, too, whoever has it.
func Meddling(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		var next corev1.ConfigMap
		n, _ := strconv.Atoi(item.Name[len("item-"):])
		key := client.ObjectKey{Namespace: item.Namespace, Name: fmt.Sprintf("item-%d", (n+1)%6)}
		if err := c.Get(ctx, key, &next); err != nil {
			return ctrl.Result{}, err // it comes
		}
		return update(ctx, c, &next, "after", item.Name)
	}
}

// Clinging adds a finalizer, and never removes it.
func Clinging(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		if !controllerutil.AddFinalizer(item, "habits.example.com/clinging") {
			return ctrl.Result{}, nil
		}
		return again(c.Update(ctx, item))
	}
}

// Idle does nothing.
func Idle(client.Client) Reconcile {
	return func(context.Context, *corev1.ConfigMap) (ctrl.Result, error) { return ctrl.Result{}, nil }
}

// Random writes what is not the same twice.
func Random(c client.Client) Reconcile {
	return func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		if item.Annotations["random"] != "" {
			return ctrl.Result{}, nil
		}
		return update(ctx, c, item, "random", rand.String(8))
	}
}
