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
	// backoffFirst and backoffLast are the mean waits after one and after many failures in a row. Handovers wait for these
	// watches, so backoffLast is short. It is the default time between renewals: an API server that bears those bears
	// this.
	backoffFirst = 50 * time.Millisecond
	backoffLast  = 2 * time.Second
	// A watch is renewed after watchFor to twice that time, at random, so that members spread.
	watchFor = 5 * time.Minute
	// A new API server may refuse for a moment what it allows. After refusedFor without an answer, that is believed.
	refusedFor = 30 * time.Second
)

// Backoff returns the wait before another attempt after so many failures in a row. It doubles from backoffFirst to
// backoffLast, and random, from [0, 1), scales it to between half and one and a half of that.
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
	// namespace is the store's own if it is empty.
	namespace string
	// optional: if an authorizer goes on refusing for refusedFor, that is told once without a permission.Error, and tried
	// again after watchFor only.
	optional bool
	// options select the objects.
	options metav1.ListOptions
	list    runtime.Object
	want    permission.Error
	// reset gets a listed state and its version. change gets one event after the other. Both are called from the goroutine
	// that follows the feed.
	reset  func(version string)
	change func(kind watch.EventType, obj runtime.Object)
}

// follow keeps the feed running until ctx ends. It goes on from the last version seen. It lists again only when the
// server does not know that version any more.
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
			lasting, told := no.more(time.Now())
			if lasting {
				wait = watchFor
			}
			if lasting && !told {
				k.opts.Report("Cannot watch "+f.resource+", and goes without", errors.New(refused.Error()))
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

// refusals are those of an authorizer since the last watch that ended well.
type refusals struct {
	since time.Time
	told  bool
}

// more takes another one, and says whether they have lasted for refusedFor, and whether it has said so before.
func (r *refusals) more(now time.Time) (lasting, told bool) {
	if r.since.IsZero() {
		r.since = now
	}
	told, lasting = r.told, now.Sub(r.since) >= refusedFor
	r.told = lasting
	return lasting, told
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

// tooLarge says that the server is behind the version asked for, as after a restore of etcd.
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
	// The timer limits the opening only; the context lives on with the watch.
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

// stopper ends the context of a watch with it.
type stopper struct {
	watch.Interface
	cancel context.CancelCauseFunc
}

func (s stopper) Stop() {
	s.Interface.Stop()
	s.cancel(nil)
}

// drainFeed hands on events until the stream ends. It returns nil if the server ended it.
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
