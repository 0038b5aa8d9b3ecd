package feed

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
)

// errOvertaken is returned if everything was listed meanwhile, or more slots have to be listed.
var errOvertaken = errors.New("overtaken by another list")

// listing is a list of a task's slots.
type listing struct {
	*stream.List
	// items are transformed. The other fields of each are those that the API server's object had.
	items   []stream.Object
	version string
	// verified are the UIDs of objects that the list did not show and that were looked up since.
	verified map[stream.Name]string
	// cached is true if the list comes from the API server's watch cache; see watchCache.
	cached bool
}

// list returns the objects of a task's slots at a version: consistently, or, if the API server fails to list them so,
// from its watch cache. The errors are persist's.
func (d *driver) list(ctx context.Context, t stream.Task) (l *listing, err error) {
	err = d.persist(ctx, t, func() error {
		share := d.inf.share
		defer share.turns.await(ctx, func() bool { return share.urgent(t.Set) })()
		sent := time.Now()
		l, err = d.listOnce(ctx, t, sharding.Request{ListOptions: metav1.ListOptions{Limit: firstPage}})
		if apierrors.IsResourceExpired(err) { // the version expired before the last page was read
			l, err = d.listOnce(ctx, t, sharding.Request{})
		}
		if err == nil || !d.mayUseCache(t.Set, err) {
			return err
		}
		d.answeredList(sent, err) // before the next list, which may take long
		var cacheErr error
		if l, cacheErr = d.listOnce(ctx, t, d.fromCache()); cacheErr != nil {
			return err
		}
		l.cached = true
		return nil
	})
	return l, err
}

// verifyUnlisted adds to a list what exists in its slots although the list did not show it.
func (d *driver) verifyUnlisted(ctx context.Context, t stream.Task, l *listing,
	names map[stream.Name]stream.Place,
) error {
	return d.persist(ctx, t, func() error {
		found, err := d.verify(ctx, names, t.Set, l.version)
		if err != nil {
			return err
		}
		for name, was := range names {
			l.verified[name] = was.UID
		}
		d.adds(l.List, found)
		for _, o := range found {
			o.Body = o.Body.(runtime.Object).DeepCopyObject()
			l.items = append(l.items, o)
		}
		return nil
	})
}

// persist repeats a read that a task needs until the API server answers it. That the kind can be listed is for the
// caller to note, when all of its reads have been answered. It returns the error where the kind is not served,
// errOvertaken where a list of everything came first, and ctx's cause.
func (d *driver) persist(ctx context.Context, t stream.Task, read func() error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		err, sent := errOvertaken, time.Now()
		if d.valid(t) {
			err = read()
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, errOvertaken), d.answeredList(sent, err):
			return err
		}
		if apierrors.IsTooManyRequests(err) {
			backoff = max(backoff, time.Second)
		}
		d.inf.share.Log.V(1).Info("Cannot list slots on their way here, trying again", "kind", d.inf.Kind.String(), "error",
			err.Error(), "in", backoff.String())
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if d.outgrown(t) {
			return errOvertaken
		}
	}
}

// listOnce lists a task's slots by the request o: in pages if o has a limit.
func (d *driver) listOnce(ctx context.Context, t stream.Task, o sharding.Request) (*listing, error) {
	r := d.newList(d.inf.WithOrphans(t.Set), false)
	items, last, err := d.pages(ctx, r, o, func() bool { return d.valid(t) })
	if err != nil {
		return nil, err
	}
	return &listing{
		List: r.List, verified: map[stream.Name]string{}, items: items, version: versionOfList(last),
	}, nil
}

// pages reads a list, and returns the objects in its slots, and its last page. Before it asks for the next page, it
// transforms what it keeps of one and drops the rest. If o has a limit, pages are as large as pageSize says.
func (s *Source) pages(ctx context.Context, r *relist, o sharding.Request, valid func() bool) (
	items []stream.Object, last runtime.Object, err error,
) {
	asked := s.scope.Narrow(&o, r.Set)
	for {
		if !valid() {
			return nil, nil, errOvertaken
		}
		page, err := s.page(ctx, &o)
		if err != nil {
			return nil, nil, err
		}
		kept, about, err := s.sift(page, r, asked)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range kept {
			o.Body = s.inf.transformed(o.Body.(runtime.Object))
			items = append(items, o)
		}
		if o.Continue = about.GetContinue(); o.Continue == "" {
			return items, page, nil
		}
	}
}
