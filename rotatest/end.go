package rotatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cleanTimeout bounds the cleanup after a run.
const cleanTimeout = time.Minute

// end stops the members and deletes what the run created, so that the next run starts from the same objects. It also
// works after the run's context has ended.
func (r *run) end(ctx context.Context, failed bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	r.record.enter(cleaning)
	return errors.Join(r.stopAll(), r.strays(ctx), r.clear(ctx, failed), r.restoreNamespaces(ctx))
}

// clear deletes what the run created, except namespaces.
func (r *run) clear(ctx context.Context, failed bool) error {
	left, err := r.left(ctx)
	held := false
	for _, obj := range left {
		err = errors.Join(err, r.deleteLeft(ctx, obj))
		if len(obj.GetFinalizers()) > 0 {
			held = true
		}
	}
	if held {
		err = errors.Join(err, r.letGo(ctx, failed))
	}
	return err
}

// stopAll ends all members.
func (r *run) stopAll() error {
	r.mu.Lock()
	all := r.all
	r.mu.Unlock()
	ended := map[*member]bool{} // unexpectedly
	for _, m := range all {
		ended[m] = m.ended()
		m.stop()
	}
	var errs []error
	for _, m := range all {
		r.remove(m)
		if err := m.end(); err != nil && (!ended[m] || r.fault.alone) {
			errs = append(errs, r.withNotes(err))
		}
	}
	return errors.Join(errs...)
}

// left returns the objects that the run created and that still exist, including kinds that are not compared. If it
// returns an error, the result is incomplete.
func (r *run) left(ctx context.Context) (left []*unstructured.Unstructured, err error) {
	resources, objects := r.record.touched()
	places := map[place]bool{}
	for p := range objects {
		places[p] = true
	}
	for _, w := range r.record.noisy() {
		places[w.place()] = true
		if !slices.ContainsFunc(resources, func(of schema.GroupVersionResource) bool {
			return of.GroupResource() == w.Resource.GroupResource()
		}) {
			resources = append(resources, w.Resource)
		}
	}
	all, err := r.present(ctx, resources, places)
	for _, obj := range all {
		if _, ok := r.record.creation(obj.GetUID()); ok && !isNamespace(obj) {
			left = append(left, obj)
		}
	}
	return left, err
}

func (r *run) deleteLeft(ctx context.Context, obj *unstructured.Unstructured) error {
	err := r.client.Delete(ctx, obj.DeepCopy(), client.Preconditions{UID: ptr.To(obj.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground), client.GracePeriodSeconds(0))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s, which the run left behind: %w", nameOf(obj), err)
	}
	return nil
}

// letGo lets the operator, undisturbed and alone, remove the finalizers of objects. It removes the remaining ones by
// force.
func (r *run) letGo(ctx context.Context, failed bool) error {
	var err error
	if !r.fault.alone || !failed { // otherwise it has had time to do so
		janitor := &run{kit: r.kit, fault: reference, record: r.record, guard: r.guard, client: r.client, rand: r.rand}
		janitor.reconciles = newReconciles(janitor)
		if err = janitor.newMember(ctx, nil); err == nil {
			_ = janitor.awaitFor(ctx, finalizerTime, "finalizers are gone", func(ctx context.Context) (string, error) {
				left, err := r.left(ctx)
				if len(left) == 0 {
					return "", err
				}
				return "there is " + nameOf(left[0]), err
			})
		}
		err = errors.Join(err, janitor.stopAll())
	}
	left, leftErr := r.left(ctx)
	err = errors.Join(err, leftErr)
	var kept []string
	for _, obj := range left {
		if len(obj.GetFinalizers()) == 0 {
			continue
		}
		kept = append(kept, fmt.Sprintf("%s with %v", nameOf(obj), obj.GetFinalizers()))
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if patchErr := r.client.Patch(ctx, obj.DeepCopy(), patch); client.IgnoreNotFound(patchErr) != nil {
			err = errors.Join(err, fmt.Errorf("remove the finalizers of %s: %w", nameOf(obj), patchErr))
		}
	}
	if len(kept) > 0 && !failed {
		return errors.Join(err, fmt.Errorf("at the end these objects were deleted, and the operator did not remove their "+
			"finalizers within %v:\n%s", finalizerTime, indent(strings.Join(kept, "\n"))))
	}
	return err
}

// finalizerTime is how long the operator may take to remove finalizers at the end.
const finalizerTime = 15 * time.Second
