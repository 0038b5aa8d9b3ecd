package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/permission"
)

const (
	// backoffFirst and backoffLast are the mean waits after one failure and after many consecutive ones. Handovers wait
	// for these watches, so backoffLast is short. It is the default time between renewals: an API server that can handle
	// renewals at that rate can handle these retries.
	backoffFirst = 50 * time.Millisecond
	backoffLast  = 2 * time.Second
	// watchFor is the shortest lifetime of a watch. The actual one is random, up to twice as long, so that members spread.
	watchFor = 5 * time.Minute
	// A new API server may refuse for a moment what it will allow. A refusal counts once it has lasted for refusedFor.
	refusedFor = 30 * time.Second
)

// Backoff returns the wait before another attempt after consecutive failures. It doubles from backoffFirst to
// backoffLast. random, from [0, 1), scales it to between half and one and a half of that.
func Backoff(failures int, random float64) time.Duration {
	mean := backoffLast
	if failures < 8 {
		mean = min(backoffLast, backoffFirst<<failures)
	}
	return time.Duration(float64(mean) * (0.5 + random))
}

// feed is one list+watch.
type feed struct {
	client   rest.Interface
	resource string
	// namespace is empty for the store's own namespace.
	namespace string
	// optional: if an authorizer keeps refusing for refusedFor, follow reports that once, without a permission.Error, and
	// then retries only every watchFor.
	optional bool
	// options select the objects.
	options metav1.ListOptions
	list    runtime.Object
	want    permission.Error
	// reset receives the version of each list. change receives one event after another. Both are called from the goroutine
	// that follows the feed.
	reset  func(version string)
	change func(kind watch.EventType, obj runtime.Object)
}

// follow keeps the feed running until ctx ends. It resumes from the last version seen. It lists again only if the
// server no longer has that version.
func (k *Kubernetes) follow(ctx context.Context, f feed) error {
	version := ""
	if f.namespace == "" {
		f.namespace = k.opts.Namespace
	}
	var no refusals
	for failures := 0; ; failures++ {
		begun := version
		err := k.followOnce(ctx, f, &version)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if version != begun && version != "" {
			failures = 0
		}
		wait := Backoff(failures, rand.Float64())
		var refused *permission.Error
		switch {
		case err == nil:
			no = refusals{}
		case f.optional && errors.As(err, &refused):
			lasting, reported := no.more(time.Now())
			if lasting {
				wait = watchFor
			}
			if lasting && !reported {
				k.opts.Report("Cannot watch "+f.resource+", and continues without", errors.New(refused.Error()))
			}
		default:
			k.opts.Report("Cannot watch "+f.resource, err)
			if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
				wait = max(wait, min(time.Duration(seconds)*time.Second, backoffLast))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// refusals are an authorizer's refusals since the last watch that ended well.
type refusals struct {
	since    time.Time
	reported bool
}

// more records another refusal. It reports whether refusals have lasted for refusedFor, and whether that was reported
// before.
func (r *refusals) more(now time.Time) (lasting, reported bool) {
	if r.since.IsZero() {
		r.since = now
	}
	reported, lasting = r.reported, now.Sub(r.since) >= refusedFor
	r.reported = lasting
	return lasting, reported
}

// followOnce lists if version is empty. Then it watches from version, which it advances, until the stream ends.
func (k *Kubernetes) followOnce(ctx context.Context, f feed, version *string) error {
	if *version == "" {
		listed, err := k.listFeed(ctx, f)
		if err != nil {
			return err
		}
		*version = listed
		f.reset(listed)
	}
	w, err := k.watchFeed(ctx, f, *version)
	if err == nil {
		defer w.Stop()
		err = drainFeed(ctx, f, w, version)
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || tooLarge(err) {
		*version = ""
		return nil
	}
	return err
}

// tooLarge reports whether the server is behind the requested version, as after a restore of etcd.
func tooLarge(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsTimeout(err) && errors.As(err, &status) &&
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

func (k *Kubernetes) listFeed(ctx context.Context, f feed) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	f.want.Verb = "list"
	err = f.client.Get().Namespace(f.namespace).Resource(f.resource).
		VersionedParams(&f.options, scheme.ParameterCodec).MaxRetries(0).Do(ctx).Into(f.list)
	if err != nil {
		return "", wrap(f.want, err)
	}
	list, err := meta.ListAccessor(f.list)
	if err != nil {
		return "", err
	}
	return list.GetResourceVersion(), nil
}

func (k *Kubernetes) watchFeed(ctx context.Context, f feed, version string) (watch.Interface, error) {
	f.want.Verb = "watch"
	options := f.options
	options.Watch, options.ResourceVersion, options.AllowWatchBookmarks = true, version, true
	seconds := int64(watchFor.Seconds() * (1 + rand.Float64()))
	options.TimeoutSeconds = &seconds
	// The timer limits only the opening. The context lasts as long as the watch.
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(readTimeout, func() { cancel(errors.New("watch: no answer")) })
	w, err := f.client.Get().Namespace(f.namespace).Resource(f.resource).
		VersionedParams(&options, scheme.ParameterCodec).MaxRetries(0).Watch(ctx)
	if !timer.Stop() && err == nil {
		w.Stop()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(nil)
		return nil, wrap(f.want, err)
	}
	return stopper{w, cancel}, nil
}

// stopper cancels the context of a watch when the watch is stopped.
type stopper struct {
	watch.Interface
	cancel context.CancelCauseFunc
}

func (s stopper) Stop() {
	s.Interface.Stop()
	s.cancel(nil)
}

// drainFeed passes on events until the stream ends. It returns nil if the server ended it.
func drainFeed(ctx context.Context, f feed, w watch.Interface, version *string) error {
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open = <-w.ResultChan():
		}
		switch {
		case !open:
			return nil
		case event.Type == watch.Error:
			return fmt.Errorf("watch %s: %w", about(f.want), apierrors.FromObject(event.Object))
		}
		obj, err := meta.Accessor(event.Object)
		if err != nil {
			return fmt.Errorf("watch %s: %s event: %w", about(f.want), event.Type, err)
		}
		if event.Type != watch.Bookmark {
			f.change(event.Type, event.Object)
		}
		*version = obj.GetResourceVersion()
	}
}
