package labeller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/permission"
)

const (
	// batchSize and batchTime bound a batch, and so how long it delays a handover.
	batchSize = 32
	batchTime = 250 * time.Millisecond
	// patchTime is the timeout of a patch on the server; the client waits a little longer for the answer.
	patchTime = 5 * time.Second
	// maxAttempts is how often a patch is sent if it fails for other reasons than throttling, before it is left to a later
	// list: an object that a webhook refuses must not delay others.
	maxAttempts = 3
)

// target is an object to be labeled and the label's value.
type target struct {
	resource               schema.GroupVersionResource
	namespace, name, value string
}

// object returns the target without its value.
func (t target) object() target {
	t.value = ""
	return t
}

func (t target) String() string {
	return strings.TrimPrefix(t.resource.GroupResource().String()+" "+t.namespace+"/"+t.name, "/")
}

// job is a target and the number of its attempts.
type job struct {
	target
	attempts int
}

// result is the outcome of a patch.
type result uint8

const (
	done    result = iota // or nothing to report
	again                 // try again, the server is throttling
	tried                 // try again, a few times
	refused               // another try would have the same result
)

// patchAll labels the targets in batches. It returns false if some were given up for now. Targets left when ctx ends or
// enter refuses are dropped.
func (l *Labeller) patchAll(ctx context.Context, targets []target, enter Permit) bool {
	jobs := make([]job, len(targets))
	for i, t := range targets {
		jobs[i].target = t
	}
	complete := true
	for len(jobs) > 0 {
		// Wait before entering the batch: inside it, a handover would also wait.
		if !l.pace.wait(ctx) {
			return complete
		}
		batch, leave, ok := enter(ctx)
		if !ok {
			return complete
		}
		n := min(len(jobs), batchSize)
		left, gaveUp := l.send(batch, jobs[:n])
		leave()
		if gaveUp {
			complete = false
		}
		jobs = append(left, jobs[n:]...)
	}
	return complete
}

// send patches the objects of a batch, the first of which has already waited for the pace. It returns the jobs to send
// again, including those for which there was no time.
func (l *Labeller) send(ctx context.Context, jobs []job) (left []job, gaveUp bool) {
	soon, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		worst error
	)
	sent := time.Now()
	for i, j := range jobs {
		if i > 0 && l.pace.tokens.Wait(soon) != nil || !l.take(soon) {
			mu.Lock()
			left = append(left, jobs[i:]...)
			mu.Unlock()
			break
		}
		group.Go(func() {
			r, err := l.patch(ctx, j.target)
			<-l.places
			mu.Lock()
			defer mu.Unlock()
			if r == tried {
				if j.attempts++; j.attempts >= maxAttempts {
					r = refused
				}
			}
			switch r {
			case done:
			case refused:
				gaveUp, worst = true, err
				l.refusals.note(j.target, err, sent)
			case again, tried:
				left = append(left, j)
			}
		})
	}
	group.Wait()
	if worst != nil {
		l.opts.Report(worst) // one per batch, since they are mostly the same
	}
	return left, gaveUp
}

// take waits until another patch may be in flight. It returns false if ctx ended or a pause began.
func (l *Labeller) take(ctx context.Context) bool {
	select {
	case l.places <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if l.pace.left() > 0 {
		<-l.places
		return false
	}
	return true
}

// patch sends one patch, at most once.
//
// Its body contains only the label. A uid or resourceVersion would be a precondition, which is not needed: a new object
// of the same name usually has the same value, a wrong write is found again like any other wrong value, and with a
// precondition an object that is written all the time would never get its label.
func (l *Labeller) patch(ctx context.Context, t target) (result, error) {
	if ctx.Err() != nil {
		return done, nil
	}
	body := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, l.opts.Label, t.value)
	prefix := []string{"/apis", t.resource.Group, t.resource.Version}
	if t.resource.Group == "" {
		prefix = []string{"/api", t.resource.Version}
	}
	limited, cancel := context.WithTimeout(ctx, patchTime+time.Second)
	defer cancel()
	sent := time.Now()
	err := l.writes.Patch(types.MergePatchType).AbsPath(prefix...).
		NamespaceIfScoped(t.namespace, t.namespace != "").Resource(t.resource.Resource).Name(t.name).
		SetHeader("Accept",
			"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json").
		Param("fieldManager", FieldManager).Param("timeout", patchTime.String()).
		Body([]byte(body)).MaxRetries(0).Do(limited).Error()
	switch {
	case err == nil:
		l.stats.patched.Add(1)
		l.refusals.forget(t)
		l.pace.resume(sent)
		return done, nil
	case ctx.Err() != nil:
		return done, nil
	}
	return l.judge(t, sent, err)
}

func (l *Labeller) judge(t target, sent time.Time, err error) (result, error) {
	status := apierrors.APIStatus(nil)
	code := http.StatusServiceUnavailable // no answer
	if errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	wrapped := fmt.Errorf("label %s: %w", t, denied(err, scope{t.resource, l.namespaceOf(t)}, "patch"))
	switch {
	case code == http.StatusNotFound && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// Not about the object: this path is not served.
		l.stats.failures.Add(1)
		l.opts.NotServed(t.resource)
		return refused, wrapped
	case code == http.StatusNotFound:
		l.stats.gone.Add(1)
		l.refusals.forget(t)
		return done, nil
	case code == http.StatusConflict:
		l.stats.conflicts.Add(1)
		return tried, wrapped
	case code == http.StatusTooManyRequests:
		l.stats.throttled.Add(1)
		l.pace.pause(sent, retryAfter(err))
		return again, wrapped
	case code >= http.StatusInternalServerError:
		l.stats.failures.Add(1)
		l.pace.pause(sent, retryAfter(err))
		return tried, wrapped
	default:
		l.stats.failures.Add(1)
		return refused, wrapped
	}
}

// namespaceOf returns the namespace in which a Role would give the permission for t, or none for a ClusterRole.
func (l *Labeller) namespaceOf(t target) string {
	if l.opts.Namespaces[0] == "" {
		return ""
	}
	return t.namespace
}

// retryAfter returns the delay that the server asked for.
func retryAfter(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// denied turns an authorizer's refusal into a permission.Error.
func denied(err error, s scope, verb string) error {
	return permission.Refused(err, permission.Error{Namespace: s.namespace, Group: s.resource.Group,
		Resource: s.resource.Resource, Verb: verb})
}

// targetOf returns the object as a target if its label is wrong.
func (l *Labeller) targetOf(resource schema.GroupVersionResource, obj metav1.Object) (target, bool) {
	value, ok := l.opts.Value(obj)
	return target{resource, obj.GetNamespace(), obj.GetName(), value}, ok && obj.GetLabels()[l.opts.Label] != value
}
