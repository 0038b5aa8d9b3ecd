package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// patches is how many patches are under way at a time.
	patches = 16
	// maxErrors is how many errors of labels are told.
	maxErrors  = 5
	progressBy = 1000
)

// Remove removes what was found: labels, then the fence, which would refuse everything without a table, then the rest.
// It removes nothing if members live, their Pods exist, or the table or Leases have changed since they were found; and
// not the fence, nor what comes after it, if that is so once the labels are gone. Leases and the table go only as they
// were found. It goes on after an error, but for the table, which stays while anything else does. said is told of
// progress.
func (f *Finder) Remove(ctx context.Context, r *Remains, said func(string)) error {
	if err := f.quiet(ctx, r); err != nil {
		return fmt.Errorf("nothing is removed: %w", err)
	}
	var errs []error
	for _, l := range r.Labels {
		if err := f.unlabel(ctx, l, said); err != nil {
			errs = append(errs, err)
		}
	}
	if len(r.Labels) > 0 { // it may have taken hours
		if err := f.quiet(ctx, r); err != nil {
			return errors.Join(append(errs, fmt.Errorf("only labels are removed: %w", err))...)
		}
	}
	for _, o := range r.Objects {
		if o.Resource == configMaps && len(errs) > 0 {
			errs = append(errs, errors.New("the table stays until the rest is removed"))
			continue
		}
		if err := f.remove(ctx, o); err != nil {
			errs = append(errs, err)
		}
	}
	if err := f.removeEvents(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (f *Finder) remove(ctx context.Context, o Object) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID(o.uid))}}
	if o.Namespace != "" {
		options.Preconditions.ResourceVersion = &o.version
	}
	err := f.meta.Resource(o.Resource).Namespace(o.Namespace).Delete(ctx, o.Name, options)
	switch {
	case err == nil, apierrors.IsNotFound(err): // a report goes with its member's Lease
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("remove %s: it has changed meanwhile: a member may have started: %w", o, err)
	}
	return fmt.Errorf("remove %s: %w", o, refused(err, o.Resource, o.Namespace, "delete"))
}

// unlabel takes a label off all objects of a kind.
func (f *Finder) unlabel(ctx context.Context, l Labels, said func(string)) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{l.Label: nil}}})
	if err != nil {
		return err
	}
	type target struct{ namespace, name string }
	var targets []target // a list that goes on while what it lists changes may leave some out
	_, err = f.each(ctx, l.Resource, l.Label, func(namespace, name string) {
		targets = append(targets, target{namespace, name})
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	failed, done := 0, 0
	work := make(chan target)
	var group sync.WaitGroup
	for range patches {
		group.Go(func() {
			for t := range work {
				_, err := f.meta.Resource(l.Resource).Namespace(t.namespace).Patch(ctx, t.name, types.MergePatchType, patch,
					metav1.PatchOptions{FieldManager: "rota-uninstall"})
				mu.Lock()
				done++
				if done%progressBy == 0 {
					said(fmt.Sprintf("label %s: %d of %d %s", l.Label, done, len(targets), l.Resource.Resource))
				}
				if err != nil && !apierrors.IsNotFound(err) {
					if failed++; len(errs) < maxErrors {
						errs = append(errs, fmt.Errorf("remove label %s of %s %s/%s: %w", l.Label, l.Resource.Resource,
							t.namespace, t.name, refused(err, l.Resource, "", "patch")))
					}
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range targets {
		work <- t
	}
	close(work)
	group.Wait()
	if failed > len(errs) {
		errs = append(errs, fmt.Errorf("and %d more", failed-len(errs)))
	}
	return errors.Join(errs...)
}

func (f *Finder) removeEvents(ctx context.Context) error {
	found, err := f.events(ctx)
	for _, name := range found {
		deleteErr := f.client.CoreV1().Events(f.o.Rota.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if deleteErr != nil && !apierrors.IsNotFound(deleteErr) {
			resource := schema.GroupVersionResource{Version: "v1", Resource: "events"}
			return fmt.Errorf("remove events: %w", refused(deleteErr, resource, f.o.Rota.Namespace, "delete"))
		}
	}
	return err
}
