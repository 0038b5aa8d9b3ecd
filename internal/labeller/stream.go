package labeller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// minWatch is the shortest time after which the server is asked to end a watch, as reflectors do; the longest is twice
// that.
const minWatch = 5 * time.Minute

// stream follows the scope from a version on until the server no longer knows the version (410) or no longer serves the
// resource (404), or ctx ends. It reopens a watch that ended for another reason.
func (f *follower) stream(ctx context.Context, version string) error {
	for failures := 0; ; {
		begun := time.Now()
		next, err := f.watch(ctx, version)
		version = next
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsNotFound(err):
			return err
		case err == nil && time.Since(begun) > time.Second:
			failures = 0
			continue
		case tooLong(err) && !f.short:
			f.short = true
			err = fmt.Errorf("%w; something in front of the API server rejects a URL of 27 KB, so malformed values of %s are "+
				"left to the scan", err, f.t.l.opts.Label)
		}
		if err != nil {
			f.t.l.opts.Report(err)
		}
		failures++
		if !sleep(ctx, backoff(failures, lastBackoff)) {
			return ctx.Err()
		}
	}
}

// tooLong reports whether the error may be a proxy's response to a long URL.
func tooLong(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	return false
}

// watch opens one watch and follows it to its end. It returns the version to continue from.
func (f *follower) watch(ctx context.Context, version string) (string, error) {
	l, s := f.t.l, f.scope
	selector := l.malformed()
	if f.short {
		selector = l.missing()
	}
	timeout := int64((minWatch + rand.N(minWatch)).Seconds())
	l.stats.watches.Add(1)
	w, err := l.reads.Resource(s.resource).Namespace(s.namespace).Watch(ctx, metav1.ListOptions{
		LabelSelector: selector, ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &timeout,
	})
	if err != nil {
		return version, fmt.Errorf("watch %s: %w", s, denied(err, s, "watch"))
	}
	defer w.Stop()
	held := grace{period: l.opts.Grace}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, left := held.next(time.Now())
		if left == 0 {
			if !f.hand(ctx, due) {
				return version, nil
			}
			continue
		}
		var soon <-chan time.Time
		if left > 0 {
			timer.Reset(left)
			soon = timer.C
		}
		var (
			e    watch.Event
			open bool
		)
		select {
		case <-ctx.Done():
			return version, nil
		case <-soon:
			continue
		case e, open = <-w.ResultChan():
		}
		if !open {
			f.flush(ctx, &held)
			return version, nil
		}
		if e.Type == watch.Error {
			f.flush(ctx, &held)
			return version, fmt.Errorf("watch %s: %w", s, apierrors.FromObject(e.Object))
		}
		obj, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			f.flush(ctx, &held)
			return version, fmt.Errorf("watch %s: the server sent a %T for metadata", s, e.Object)
		}
		version = obj.ResourceVersion
		t, wrong := l.targetOf(s.resource, obj)
		// Here, DELETED means that the label was fixed or the object deleted.
		if wrong && (e.Type == watch.Added || e.Type == watch.Modified) {
			held.add(t, time.Now())
		} else {
			held.drop(t)
			l.refusals.forget(t)
		}
	}
}

// flush passes on what still waits when a watch ends; the next watch starts after it.
func (f *follower) flush(ctx context.Context, held *grace) {
	held.period = 0
	for {
		t, left := held.next(time.Now())
		if left < 0 {
			return
		}
		if !f.hand(ctx, t) {
			return
		}
	}
}
