package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/permission"
)

const (
	// maxNotes limits the events that are being sent or wait for another attempt. Further ones are dropped.
	maxNotes = 64
	// maxNote is the API's limit for the length of a note, in bytes.
	maxNote = 1024
	// noteRetry is the wait before the second attempt. It doubles up to noteRetryMost. An event that could not be sent for
	// noteLife is dropped.
	noteRetry     = 250 * time.Millisecond
	noteRetryMost = 30 * time.Second
	noteLife      = 30 * time.Minute
)

// Notify implements Store with an event on the ConfigMap, which `kubectl describe` and `kubectl events` show.
//
// Often the event is about an API server that does not answer. So it is sent again, with its original time, until the
// server accepts it, for at most half an hour.
func (k *Kubernetes) Notify(ctx context.Context, n member.Notify) { k.notify(ctx, n) }

// NotifyNow implements Store.
func (k *Kubernetes) NotifyNow(ctx context.Context, n member.Notify) {
	select {
	case <-k.notify(ctx, n):
	case <-ctx.Done():
	}
}

// notify returns a channel that is closed once the event was created or dropped.
func (k *Kubernetes) notify(ctx context.Context, n member.Notify) <-chan struct{} {
	over := make(chan struct{})
	select {
	case k.noteSlots <- struct{}{}:
	default:
		close(over)
		return over
	}
	event := k.event(n, time.Now())
	// The event is often the last one before the member ends.
	ctx = context.WithoutCancel(ctx)
	k.notes.Go(func() {
		defer close(over)
		defer func() { <-k.noteSlots }()
		if err := k.sendNote(ctx, event); err != nil {
			k.opts.Report("Cannot create the event "+n.Reason, err)
		}
	})
	return over
}

// maxInstance is the API's limit for the name of a reporting instance, in bytes.
const maxInstance = 128

// sendNote sends an event until it is created or refused by the server, is too old, or the store is closed.
func (k *Kubernetes) sendNote(ctx context.Context, event *eventsv1.Event) error {
	want := permission.Error{Namespace: k.opts.Namespace, Group: eventsv1.GroupName, Resource: "events", Verb: "create"}
	begun := time.Now()
	for delay := noteRetry; ; delay = min(2*delay, noteRetryMost) {
		req := k.calls.events.Post().Namespace(k.opts.Namespace).Resource("events").Body(event)
		_, err := k.write(ctx, readTimeout, req, nil, want)
		switch {
		case err == nil || apierrors.IsAlreadyExists(err): // created by an attempt whose answer was lost
			return nil
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || time.Since(begun) > noteLife:
			return err
		}
		select {
		case <-time.After(delay):
		case <-k.closing:
			return err
		}
	}
}

func (k *Kubernetes) event(n member.Notify, now time.Time) *eventsv1.Event {
	namespace, name := k.opts.Namespace, k.opts.Name
	regarding := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name}
	if cm, ok := k.recall(configMaps).(*corev1.ConfigMap); ok {
		regarding.UID = cm.UID
	}
	kind := corev1.EventTypeNormal
	if n.Warning {
		kind = corev1.EventTypeWarning
	}
	note := n.Message
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", name, now.UnixNano()), Namespace: namespace},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: names.Prefix + "/rota",
		ReportingInstance:   k.opts.Instance[:min(len(k.opts.Instance), maxInstance)],
		Action:              n.Reason,
		Reason:              n.Reason,
		Regarding:           regarding,
		Note:                note,
		Type:                kind,
	}
}
