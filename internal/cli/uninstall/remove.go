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
	// patches limits concurrent patches.
	patches = 16
	// maxErrors limits the label errors that are listed.
	maxErrors  = 5
	progressBy = 1000
)

// Remove removes what was found: labels, then the fence, which would reject everything without a table, then the rest.
// It removes nothing if members are alive, their Pods exist, or the table or Leases have changed since they were found.
// It checks that again after removing labels, before the fence. Leases and the table are only removed unchanged. It
// continues after an error, but keeps the table while anything else is left. It calls progress with progress messages.
func (f *Finder) Remove(ctx context.Context, r *Remains, progress func(string)) error {
	if err := f.quiet(ctx, r); err != nil {
		return fmt.Errorf("nothing is removed: %w", err)
	}
	var errs []error
	for _, l := range r.Labels {
		if err := f.unlabel(ctx, l, progress); err != nil {
			errs = append(errs, err)
		}
	}
	if len(r.Labels) > 0 { // labels may have taken hours
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
	case err == nil, apierrors.IsNotFound(err): // deleting a member's Lease also deletes its report
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("remove %s: it has changed meanwhile: a member may have started: %w", o, err)
	}
	return fmt.Errorf("remove %s: %w", o, refused(err, o.Resource, o.Namespace, "delete"))
}

// unlabel removes a label from all objects of a kind.
func (f *Finder) unlabel(ctx context.Context, l Labels, progress func(string)) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{l.Label: nil}}})
	if err != nil {
		return err
	}
	type target struct{ namespace, name string }
	var targets []target // collected first, because a list may skip objects that change meanwhile
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
					progress(fmt.Sprintf("label %s: %d of %d %s", l.Label, done, len(targets), l.Resource.Resource))
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
