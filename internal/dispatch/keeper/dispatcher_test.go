package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// TestMain is for tests of which some have simulated time.
func TestMain(m *testing.M) {
	elapsed.Simulated()
	controlplane.Main(m, controlplane.Options{})
}

var configMap = schema.GroupKind{Kind: "ConfigMap"}

// tier is a rota of dispatchers, with workers that copy what they see of each ConfigMap.
type tier struct {
	t         *testing.T
	config    *rest.Config
	namespace string
	started   int

	mu      sync.Mutex
	members []*replica
	holds   map[string]string // who has each key
	seen    map[string]string // the version that was last worked on, "gone" for a deletion
	works   int
	fail    int // how many works fail
}

type replica struct {
	*keeper.Dispatcher
	leave context.CancelFunc
	done  chan error
}

func (x *tier) start() *replica {
	x.t.Helper()
	x.started++
	r, err := rota.New(x.config, rota.Options{
		Name: "tier", Namespace: x.namespace, LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second,
		RetryPeriod: 500 * time.Millisecond, WriteTimeout: time.Second, FenceDelay: 1500 * time.Millisecond,
		Identity: rota.Identity{Pod: "tier-" + strconv.Itoa(x.started)},
	})
	require.NoError(x.t, err)
	d, err := keeper.New(x.config, r, keeper.Options{
		Kinds: []keeper.Kind{{Kind: configMap, Namespaces: []string{x.namespace}, Selector: "tier=yes"}},
	})
	require.NoError(x.t, err)
	ctx, leave := context.WithCancel(context.Background())
	life, end := context.WithCancel(context.Background())
	m := &replica{Dispatcher: d, leave: leave, done: make(chan error, 1)}
	ran := make(chan struct{})
	go func() { defer close(ran); d.Run(life) }()
	go func() {
		err := r.Run(ctx)
		end()
		<-ran
		m.done <- err
	}()
	x.t.Cleanup(func() { m.stop(x.t) })
	x.mu.Lock()
	defer x.mu.Unlock()
	x.members = append(x.members, m)
	return m
}

func (m *replica) stop(t *testing.T) {
	m.leave()
	err := require.Receive(t, m.done, time.Minute, "a dispatcher does not end")
	require.NoError(t, err)
	m.done <- nil
	if _, err := m.Take(t.Context(), keeper.Ask{Worker: "w", Max: 1, Wait: time.Minute}); !errors.Is(err,
		keeper.ErrOver) && t.Context().Err() == nil {
		t.Errorf("a take of a dispatcher that has ended: %v", err)
	}
}

// work asks all dispatchers in turn until ctx ends.
func (x *tier) work(ctx context.Context, name string, objects interface {
	Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error)
},
) {
	for n := 0; ctx.Err() == nil; n++ {
		x.mu.Lock()
		m := x.members[n%len(x.members)]
		x.mu.Unlock()
		takes, err := m.Take(ctx, keeper.Ask{Worker: name, Max: 3, Wait: 100 * time.Millisecond, Length: 2 * time.Second})
		if err != nil && !errors.Is(err, keeper.ErrOver) {
			x.t.Error(err)
			return
		}
		for _, take := range takes {
			x.begin(name, take)
			version := "gone"
			obj, err := objects.Get(context.WithoutCancel(ctx), take.Key.Name, metav1.GetOptions{})
			switch {
			case err == nil:
				version = obj.ResourceVersion
			case !apierrors.IsNotFound(err):
				x.t.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
			result := x.end(take, version)
			if err := m.Done(take.ID, name, result); err != nil {
				x.t.Errorf("%v: %v", take, err)
			}
		}
	}
}

func (x *tier) begin(worker string, take queue.Take) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if other := x.holds[take.Key.Name]; other != "" {
		x.t.Errorf("%s has %s while %s has it", worker, take.Key, other)
	}
	x.holds[take.Key.Name] = worker
	x.works++
}

func (x *tier) end(take queue.Take, version string) queue.Result {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.holds, take.Key.Name)
	if x.fail > 0 {
		x.fail--
		return queue.Result{Retry: true}
	}
	x.seen[take.Key.Name] = version
	return queue.Result{}
}

// TestTier: workers have each object once at a time and see every change, while dispatchers come and go.
func TestTier(t *testing.T) {
	t.Parallel()
	namespace := controlplane.Namespace(t)
	config := controlplane.For(t).Config()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	objects := client.CoreV1().ConfigMaps(namespace)
	x := &tier{t: t, config: config, namespace: namespace, holds: map[string]string{}, seen: map[string]string{}}
	const count = 100
	want := map[string]string{}        // versions
	rng := rand.New(rand.NewPCG(1, 2)) // not for secrets
	// change creates, updates or deletes an object.
	change := func() {
		t.Helper()
		name := "object-" + strconv.Itoa(rng.IntN(count))
		obj := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": "yes"}},
			Data:       map[string]string{"n": strconv.Itoa(rng.Int())},
		}
		var err error
		switch version, exists := want[name]; {
		case !exists || version == "gone":
			if obj, err = objects.Create(t.Context(), obj, metav1.CreateOptions{}); err == nil {
				want[name] = obj.ResourceVersion
			}
		case rng.IntN(5) == 0:
			if err = objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err == nil {
				want[name] = "gone"
			}
		default:
			if obj, err = objects.Update(t.Context(), obj, metav1.UpdateOptions{}); err == nil {
				want[name] = obj.ResourceVersion
			}
		}
		require.NoError(t, err)
	}
	load := func(d time.Duration) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
			change()
		}
	}
	settled := func(when string) {
		t.Helper()
		err := await.Until(t.Context(), 20*time.Millisecond, 30*time.Second, func() string {
			x.mu.Lock()
			defer x.mu.Unlock()
			if maps.Equal(want, x.seen) {
				return ""
			}
			for name, version := range want {
				if x.seen[name] != version {
					return fmt.Sprintf("%s: %s was seen at %q, want %q", when, name, x.seen[name], version)
				}
			}
			return fmt.Sprintf("%s: %d objects were seen, want %d", when, len(x.seen), len(want))
		})
		require.NoError(t, err)
	}
	for range 100 { // these are there before
		change()
	}
	maps.DeleteFunc(want, func(_, version string) bool { return version == "gone" }) // what was deleted before is not told
	a := x.start()
	var workers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer workers.Wait()
	defer stop()
	for i := range 4 {
		workers.Go(func() { x.work(ctx, "worker-"+strconv.Itoa(i), objects) })
	}
	settled("one dispatcher")
	load(2 * time.Second)
	settled("one dispatcher")
	x.mu.Lock()
	x.fail = 20
	x.mu.Unlock()
	x.start()
	load(4 * time.Second)
	settled("a second one joined")
	x.start()
	load(4 * time.Second)
	a.stop(t)
	load(4 * time.Second)
	settled("one joined and one left")
	t.Logf("%d takes", x.works)
}
