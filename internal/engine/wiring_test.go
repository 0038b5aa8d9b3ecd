package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// lines are what a rota logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) write(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, prefix+" "+args)
}

func (l *lines) logger() logr.Logger { return funcr.New(l.write, funcr.Options{}) }

// wants checks how many lines have all of the words.
func (l *lines) wants(t *testing.T, count int, words ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.all {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			n++
		}
	}
	if n != count {
		t.Errorf("%d lines with %q, want %d, in:\n%s", n, words, count, strings.Join(l.all, "\n"))
	}
}

func loggedRota(t *testing.T) (*Engine, *lines) {
	t.Helper()
	log := &lines{}
	return testRotaLogging(t, log.logger()), log
}

// emptyKind is a kind of which there are no objects.
func emptyKind() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFake()
			context.AfterFunc(ctx, w.Stop)
			return w, nil
		},
	}
}

var secretKind = schema.GroupKind{Kind: "Secret"}

func ignore([]types.NamespacedName, work.Priority) {}

// runs returns what runs an informer and a worker.
func runs(q workqueue.TypedRateLimitingInterface[string], informer cache.SharedIndexInformer) func(context.Context) {
	return func(ctx context.Context) {
		context.AfterFunc(ctx, q.ShutDown)
		go q.Get()
		informer.RunWithContext(ctx)
	}
}

// What can never work is refused when Run wants to join, in words that name the controller, the kind and what is
// missing.
func TestRunRefusesWrongWiring(t *testing.T) {
	for _, test := range []struct {
		name  string
		wire  func(t *testing.T, r *Engine) (run func(context.Context))
		words []string
	}{
		{
			"a controller whose informer holds all objects",
			func(t *testing.T, r *Engine) func(context.Context) {
				c := testController(t, r, "replicas", secretKind, ignore)
				q := controllers.NewQueue(c, testInner[string](t), func(string) (types.NamespacedName, error) {
					return types.NamespacedName{}, nil
				})
				return runs(q, cache.NewSharedIndexInformer(emptyKind(), &corev1.Secret{}, deliverytest.Never, nil))
			},
			[]string{"controller replicas", "Secret", "rota.ShareInformer", "rota.NewQueue"},
		},
		{
			"a client that was not wrapped",
			func(t *testing.T, r *Engine) func(context.Context) {
				informer := r.share.NewInformer(secretKind, emptyKind(), &corev1.Secret{}, deliverytest.Never, nil)
				q, err := NewQueue(r, "replicas", informer, testInner[string](t))
				require.NoError(t, err)
				return runs(q, informer)
			},
			[]string{"queue replicas", "rota.WrapConfig", "WrapTransport"},
		},
		{
			"an informer that was not started",
			func(t *testing.T, r *Engine) func(context.Context) {
				c := testController(t, r, "replicas", secretKind, ignore)
				r.share.NewInformer(secretKind, emptyKind(), &corev1.Secret{}, deliverytest.Never, nil)
				c.Started()
				return func(ctx context.Context) { <-ctx.Done() }
			},
			[]string{"controller replicas", "Secret", "was not started"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := testRota(t)
				r.store = memory.New().Client(nil)
				run := test.wire(t, r)
				err := r.Work(t.Context(), run)
				if err == nil || r.ID() != "" {
					t.Fatalf("Work returned %v as %q, want an error and that it never joined", err, r.ID())
				}
				require.ErrorSays(t, err, test.words...)
			})
		})
	}
}

// answers is an API server with no Secrets.
func answers(req *http.Request) (*http.Response, error) {
	resp := status(http.StatusOK)
	resp.Header, resp.Request = http.Header{"Content-Type": {"application/json"}}, req
	resp.Body = io.NopCloser(strings.NewReader(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`))
	if req.URL.Query().Get("watch") == "true" {
		from, to := io.Pipe()
		context.AfterFunc(req.Context(), func() { _ = to.Close() })
		resp.Body = from
	}
	return resp, nil
}

// workOnSecrets has a rota work for a minute on Secrets, which it lists and watches by a client.
func workOnSecrets(t *testing.T, r *Engine, api kubernetes.Interface) error {
	t.Helper()
	factory := informers.NewSharedInformerFactory(api, deliverytest.Never)
	informer, err := ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
		api.CoreV1().Secrets(metav1.NamespaceAll))
	require.NoError(t, err)
	q, err := NewQueue(r, "secrets", informer, testInner[string](t))
	require.NoError(t, err)
	withHandler(t, informer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return r.Work(ctx, runs(q, informer))
}

// The requests of informers have to come through a wrapped client, as those of workers do.
func TestInformersReadThroughWrappedClients(t *testing.T) {
	for _, wrapped := range []bool{true, false} {
		t.Run(fmt.Sprint("wrapped: ", wrapped), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := testRota(t)
				r.store, r.rest, r.reports = memory.New().Client(nil), nil, nil
				plain := &rest.Config{Host: "https://example.com", Transport: roundTripper(answers)}
				client := r.WrapConfig(plain)
				kubernetes.NewForConfigOrDie(client) // that of the workers
				if !wrapped {
					client = plain
				}
				api := kubernetes.NewForConfigOrDie(client)
				err := workOnSecrets(t, r, api)
				if wrapped {
					if err != nil || !r.state.HasJoined() {
						t.Errorf("Work returned %v, joined: %t, want that it works", err, r.state.HasJoined())
					}
					return
				}
				require.ErrorSays(t, err, "informer of Secret", "rota.WrapConfig", "ShareInformer")
			})
		})
	}
}

// What a member's informers list is not compressed. Other reads are as their client sends them.
func TestListsAreNotCompressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		r.store, r.rest, r.reports = memory.New().Client(nil), nil, nil
		var mu sync.Mutex
		asked := map[string][]string{}
		config := r.WrapConfig(&rest.Config{Host: "https://example.com", Transport: roundTripper(
			func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[req.URL.Path] = append(asked[req.URL.Path], req.Header.Get("Accept-Encoding"))
				return answers(req)
			})})
		api := kubernetes.NewForConfigOrDie(config)
		require.NoError(t, workOnSecrets(t, r, api))
		_, err := api.CoreV1().Secrets("a").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		all := asked["/api/v1/secrets"]
		if len(all) == 0 || slices.ContainsFunc(all, func(e string) bool { return e != "identity" }) {
			t.Errorf("the informer asks for %q, want identity each time", all)
		}
		if some := asked["/api/v1/namespaces/a/secrets"]; !slices.Equal(some, []string{""}) {
			t.Errorf("a client's list asks for %q, want what its transport asks for", some)
		}
	})
}

// What Rota.NewInformer reads may be no API server at all, so that it is told rather than refused.
func TestInformersThatReadElsewhereAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := loggedRota(t)
		require.NoError(t, r.share.Shard(secretKind))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 {
			informer := r.share.NewInformer(secretKind, emptyKind(), &corev1.Secret{}, deliverytest.Never, nil)
			running.Go(func() { informer.RunWithContext(ctx) })
		}
		synctest.Wait()
		cancel()
		running.Wait()
		log.wants(t, 1, "rota.WrapConfig", "Secret", "Rota.Wrote")
	})
}

// What shows only while a member works is told with its place, again while it recurs, and makes the member unready.
func TestFaultsAreTold(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(t *testing.T, r *Engine)
		word string // "": nothing is wrong
	}{
		{"all as it should be", func(t *testing.T, r *Engine) {
			q, _ := testQueue(t, r)
			q.Add(testItem)
			workOn(t, q, q.Get, q.Admit)
		}, ""},
		{"no Admit", func(t *testing.T, r *Engine) {
			q, _ := testQueue(t, r)
			q.Add(testItem)
			item, _ := q.Get()
			q.Done(item)
		}, "without Admit"},
		{"one given up", func(t *testing.T, r *Engine) {
			q, _ := testQueue(t, r)
			q.Add(testItem)
			workOn(t, q, q.Get, q.Admit)
			q.Add(testItem)
			item, _ := q.Get()
			q.Done(item)
		}, ""},
		{"handlers Add to the work queue below", func(t *testing.T, r *Engine) {
			q, inner := testQueue(t, r)
			inner.Add(testItem)
			workOn(t, q, q.Get, q.Admit)
		}, "never came to the queue by Add"},
		{"only the rota adds", func(t *testing.T, r *Engine) {
			q, _ := testQueue(t, r)
			q.queue.Controller().Opened(own(r, testItem), openedWith(testItem), nil)
			workOn(t, q, q.Get, q.Admit)
		}, ""},
		{"an Enqueue that adds nothing", func(t *testing.T, r *Engine) {
			c := testController(t, r, "test", secretKind, ignore)
			c.Opened(own(r, testItem), openedWith(testItem), nil)
		}, "Enqueue was given objects"},
		{"no handler", func(t *testing.T, r *Engine) { testQueue(t, r) }, "no event handler was added to the informer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := loggedRota(t)
				join(r)
				own(r, testItem)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go r.watchWiring(ctx)
				test.do(t, r)
				if test.word != "no event handler was added to the informer" {
					for _, c := range r.controllers.All() {
						if informer := c.Informer; informer != nil {
							_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
						}
					}
				}
				<-time.After(startPatience + time.Second)
				err := r.Ready(nil)
				if test.word == "" {
					require.NoError(t, err)
					log.wants(t, 0, "controller test:")
					return
				}
				log.wants(t, 1, "controller test:", test.word)
				require.ErrorSays(t, err, test.word)
			})
		})
	}
}

func openedWith(item cache.ObjectName) delivery.Opened {
	return delivery.Opened{Changed: []types.NamespacedName{types.NamespacedName(item)}}
}

// workOn does what a worker does with one item.
func workOn(t *testing.T, q *Queue[cache.ObjectName], get func() (cache.ObjectName, bool),
	admit func(func(context.Context, cache.ObjectName) error) func(context.Context, cache.ObjectName) error,
) {
	t.Helper()
	item, _ := get()
	require.NoError(t, admit(func(context.Context, cache.ObjectName) error { return nil })(t.Context(), item))
	q.Done(item)
}

// A fault that recurs is told once a minute, with how often it was; one that does not is forgotten.
func TestFaultsAreToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := loggedRota(t)
		join(r)
		own(r, testItem)
		q, _ := testQueue(t, r)
		for range 130 {
			q.Add(testItem)
			item, _ := q.Get()
			q.Done(item)
			<-time.After(time.Second)
		}
		log.wants(t, 3, "without Admit")
		log.wants(t, 1, "without Admit", fmt.Sprintf("%q=%d", "times", 121))
		if r.Ready(nil) == nil {
			t.Error("ready although its workers do not ask the gate")
		}
		<-time.After(time.Minute)
		if err := r.Ready(nil); err != nil {
			t.Errorf("Ready: %v, want nil: it does not recur", err)
		}
	})
}

func TestQueuesThatAreRefused(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://127.0.0.1:1"})
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	podKind := corev1.SchemeGroupVersion.WithKind("Pod")
	for name, test := range map[string]struct {
		make  func(t *testing.T, r *Engine) error
		words []string
	}{
		"of a plain informer": {func(t *testing.T, r *Engine) error {
			plain := informers.NewSharedInformerFactory(client, deliverytest.Never).Core().V1().Pods().Informer()
			_, err := NewQueue(r, "two", plain, testInner[string](t))
			return err
		}, []string{"queue two", "holds all objects", "rota.ShareInformer"}},
		"of an informer of children": {func(t *testing.T, r *Engine) error {
			children, err := ShareInformer(r, informers.NewSharedInformerFactory(client, deliverytest.Never), podKind, &corev1.Pod{}, pods,
				Children{Of: secretKind})
			require.NoError(t, err)
			_, err = NewQueue(r, "two", children, testInner[string](t))
			return err
		}, []string{"queue two", "Pod by their owners", "of another factory"}},
		"two of one work queue": {func(t *testing.T, r *Engine) error {
			inner := testInner[string](t)
			_, err := NewQueue(r, "one", testInformer(r), inner)
			require.NoError(t, err)
			_, err = NewQueue(r, "two", testInformer(r), inner)
			return err
		}, []string{"queue two", "queue one already"}},
		"a queue of a queue": {func(t *testing.T, r *Engine) error {
			one, _ := testQueue(t, r)
			_, err := NewQueue(r, "two", testInformer(r), one)
			return err
		}, []string{"queue two", "already"}},
		"two of one name": {func(t *testing.T, r *Engine) error {
			testQueue(t, r)
			_, err := NewQueue(r, "test", testInformer(r), testInner[string](t))
			return err
		}, []string{"test", "already"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.make(t, testRota(t))
			require.ErrorSays(t, err, test.words...)
		})
	}
}

// An informer of all objects of a sharded kind, of which the rota knows nothing, is told once.
func TestPlainInformersOfShardedKindsAreTold(t *testing.T) {
	r, log := loggedRota(t)
	require.NoError(t, r.Shard(secretKind))
	transport := r.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) { return status(200), nil }))
	for _, path := range []string{"secrets?watch=true", "secrets?watch=true", "configmaps?watch=true", "secrets",
		"secrets?watch=true&fieldSelector=metadata.name%3Da"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/api/v1/"+path, http.NoBody)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
	}
	log.wants(t, 1, "watched by an informer of which the rota knows nothing", `"resource"="secrets"`)
	log.wants(t, 1, "watched by")
}
