package keeper_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/test/controlplane"
)

// way is a dispatcher's way to the API server.
type way struct {
	mu      sync.Mutex
	down    bool // nothing comes through
	watches bool // the watches of objects do not
	expired bool // the next one is answered as if it came too late
	open    []io.Closer
}

func (w *way) wrap(next http.RoundTripper) http.RoundTripper {
	return lane(func(r *http.Request) (*http.Response, error) { return w.send(r, next) })
}

// lane is an http.RoundTripper.
type lane func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (l lane) RoundTrip(r *http.Request) (*http.Response, error) { return l(r) }

const tooLate = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
	`"message":"too old resource version: 1 (2)","reason":"Expired","code":410}}` + "\n"

func (w *way) send(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	query := r.URL.Query()
	watch := query.Get("watch") == "true" || query.Get("watch") == "1"
	objects := watch && query.Get("labelSelector") == "tier=yes"
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.down, w.watches && objects:
		return nil, errors.New("injected")
	case w.expired && objects:
		w.expired = false
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(bytes.NewBufferString(tooLate)),
		}, nil
	}
	w.mu.Unlock()
	answer, err := next.RoundTrip(r)
	w.mu.Lock()
	if err == nil && watch {
		w.open = append(w.open, answer.Body)
	}
	return answer, err
}

// set changes what comes through, and ends what is under way.
func (w *way) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	for _, c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}

// remembering is a tier whose workers have worked on all of some objects.
func remembering(t *testing.T, remember bool, dispatchers, count int) (*tier, func(int) error) {
	t.Helper()
	config := controlplane.For(t).Config()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	x := &tier{
		t: t, config: config, namespace: controlplane.Namespace(t), holds: map[string]string{}, seen: map[string]string{},
		remember: remember,
	}
	objects := client.CoreV1().ConfigMaps(x.namespace)
	for i := range count {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Labels: map[string]string{"tier": "yes"}}}
		if _, err := objects.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range dispatchers {
		x.start()
	}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	t.Cleanup(func() { stop(); workers.Wait() })
	for i := range 2 {
		workers.Go(func() { x.work(ctx, "worker-"+strconv.Itoa(i), objects) })
	}
	err = await.Until(t.Context(), 20*time.Millisecond, time.Minute, func() string {
		for _, m := range x.members {
			if owned := m.rota.Status().Owned; owned.Len() != 256/dispatchers {
				return "a dispatcher has slots " + owned.String()
			}
		}
		if missing := x.missing(count, func(version string) bool { return version != "" }); len(missing) > 0 {
			return "nobody has worked on " + strings.Join(missing, ", ")
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	return x, func(i int) error {
		return objects.Delete(context.Background(), strconv.Itoa(i), metav1.DeleteOptions{})
	}
}

// missing returns the objects whose version, as it was last worked on, does not do.
func (x *tier) missing(count int, does func(version string) bool) (out []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range count {
		if name := strconv.Itoa(i); !does(x.seen[name]) {
			out = append(out, name)
		}
	}
	return out
}

func gone(version string) bool { return version == "gone" }

// A watch is interrupted for so long that the API server does not know any more what happened. Objects are deleted
// meanwhile. Only a dispatcher that remembers names notices.
func TestDeletedUnwatched(t *testing.T) {
	t.Parallel()
	for _, remember := range []bool{true, false} {
		t.Run(strconv.FormatBool(remember), func(t *testing.T) {
			const count, deleted = 40, 10
			x, remove := remembering(t, remember, 1, count)
			d := x.members[0]
			if names, size := d.Remembered(); remember != (names == count) || remember != (size > 0) {
				t.Errorf("%d names in %d bytes are remembered", names, size)
			}
			d.way.set(func() { d.way.watches = true })
			for i := range deleted {
				if err := remove(i); err != nil {
					t.Fatal(err)
				}
			}
			x.mu.Lock()
			clear(x.seen)
			x.mu.Unlock()
			d.way.set(func() { d.way.watches, d.way.expired = false, true })
			err := await.Until(t.Context(), 20*time.Millisecond, 30*time.Second, func() string {
				// The others are listed again, so all have been told of when these have.
				if n := len(x.missing(count, func(version string) bool { return version != "" && version != "gone" })); n > deleted {
					return strconv.Itoa(n-deleted) + " objects are not worked on again"
				}
				if remember {
					return strings.Join(x.missing(deleted, gone), ", ")
				}
				return ""
			})
			if err != nil {
				t.Error(err)
			}
			if n := deleted - len(x.missing(deleted, gone)); remember != (n == deleted) || !remember && n > 0 {
				t.Errorf("%d of %d deletions were noticed", n, deleted)
			}
			if names, _ := d.Remembered(); remember && names != count-deleted {
				t.Errorf("%d names are remembered, want %d", names, count-deleted)
			}
		})
	}
}

// A dispatcher dies, and objects in its slots are deleted before others have these. The others have seen it, and know
// it if they remember.
func TestDeletedWhileNobodyOwns(t *testing.T) {
	t.Parallel()
	for _, remember := range []bool{true, false} {
		t.Run(strconv.FormatBool(remember), func(t *testing.T) {
			const count = 40
			x, remove := remembering(t, remember, 2, count)
			dead := x.members[0]
			dead.way.set(func() { dead.way.down = true })
			for i := range count {
				if err := remove(i); err != nil {
					t.Fatal(err)
				}
			}
			err := await.Until(t.Context(), 20*time.Millisecond, time.Minute, func() string {
				if open := x.members[1].rota.Status().Open; open.Len() < 256 {
					return "the other dispatcher has slots " + open.String()
				}
				if remember {
					return strings.Join(x.missing(count, gone), ", ")
				}
				return ""
			})
			if err != nil {
				t.Error(err)
			}
			if missing := x.missing(count, gone); remember != (len(missing) == 0) {
				t.Errorf("deletions that nobody noticed: %v", missing)
			}
			dead.way.set(func() { dead.way.down = false })
		})
	}
}

// The Lease of a dispatcher lapses while a deletion is in backoff. The deletion comes again.
func TestDeletionOutlivesALapse(t *testing.T) {
	t.Parallel()
	config := controlplane.For(t).Config()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	x := &tier{
		t: t, config: config, namespace: controlplane.Namespace(t), holds: map[string]string{}, seen: map[string]string{},
	}
	objects := client.CoreV1().ConfigMaps(x.namespace)
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"tier": "yes"}}}
	if _, err := objects.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m := x.start()
	end := func(gone bool, r queue.Result) {
		t.Helper()
		takes, err := m.Take(t.Context(), keeper.Ask{Worker: "w", Max: 1, Wait: 30 * time.Second, Length: time.Minute})
		if err != nil || len(takes) != 1 || takes[0].Gone != gone {
			t.Fatalf("takes %+v, want one, gone: %t; %v", takes, gone, err)
		}
		if err := m.Done(takes[0].ID, "w", r); err != nil {
			t.Fatal(err)
		}
	}
	end(false, queue.Result{})
	if err := objects.Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	end(true, queue.Result{Retry: true, After: 2 * time.Second})
	m.way.set(func() { m.way.down = true })
	err = await.Until(t.Context(), 20*time.Millisecond, 30*time.Second, func() string {
		if open := m.rota.Status().Open; !open.Empty() {
			return "slots are open: " + open.String()
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	m.way.set(func() { m.way.down = false })
	end(true, queue.Result{})
}
