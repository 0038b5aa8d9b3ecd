package keeper_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/test/controlplane"
)

// parents is a rota of dispatchers whose ConfigMaps own Secrets.
type parents struct {
	t         *testing.T
	client    *kubernetes.Clientset
	namespace string
	resync    time.Duration

	mu    sync.Mutex
	takes map[string][]queue.Take // by name
}

// start starts a dispatcher and a worker of its own, until leave is called.
func (p *parents) start(pod string) (leave func()) {
	p.t.Helper()
	config := controlplane.For(p.t).Config()
	config.QPS = -1
	r, err := rota.New(config, rota.Options{
		Name: "tier", Namespace: p.namespace, LeaseDuration: 4 * time.Second, Identity: rota.Identity{Pod: pod},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	d, err := keeper.New(config, r, keeper.Options{Resync: p.resync, Kinds: []keeper.Kind{{
		Kind: configMap, Namespaces: []string{p.namespace}, Owns: []schema.GroupKind{{Kind: "Secret"}},
	}}})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	life, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(life) })
	running.Go(func() {
		defer end()
		if err := r.Run(ctx); err != nil {
			p.t.Error(err)
		}
	})
	running.Go(func() {
		for life.Err() == nil {
			takes, _ := d.Take(life, keeper.Ask{Worker: "w", Max: 10, Wait: time.Minute})
			for _, take := range takes {
				p.mu.Lock()
				p.takes[take.Key.Name] = append(p.takes[take.Key.Name], take)
				p.mu.Unlock()
				if err := d.Done(take.ID, "w", queue.Result{}); err != nil {
					p.t.Error(err)
				}
			}
		}
	})
	leave = sync.OnceFunc(func() { stop(); running.Wait() })
	p.t.Cleanup(leave)
	return leave
}

// count is how often a name was taken.
func (p *parents) count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.takes[name])
}

// comes does something, and waits until the name is taken after that.
func (p *parents) comes(name, when string, do func() error) queue.Take {
	p.t.Helper()
	before := p.count(name)
	if err := do(); err != nil {
		p.t.Fatal(err)
	}
	if err := await.Until(p.t.Context(), 10*time.Millisecond, 20*time.Second, func() string {
		if p.count(name) == before {
			return when + ": " + name + " was not handed out"
		}
		return ""
	}); err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takes[name][len(p.takes[name])-1]
}

// TestOwns: when a child changes, its owner is handed out, wherever its slot is.
func TestOwns(t *testing.T) {
	t.Parallel()
	p := &parents{t: t, namespace: controlplane.Namespace(t), takes: map[string][]queue.Take{}}
	var err error
	if p.client, err = kubernetes.NewForConfig(controlplane.For(t).Config()); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	maps, secrets := p.client.CoreV1().ConfigMaps(p.namespace), p.client.CoreV1().Secrets(p.namespace)
	owners := map[string]types.UID{}
	for i := range 6 {
		name := "owner-" + strconv.Itoa(i)
		obj, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owners[name] = obj.UID
	}
	leave := p.start("tier-0")
	for name := range owners {
		if err := await.Until(ctx, 10*time.Millisecond, 20*time.Second, func() string {
			if p.count(name) == 0 {
				return name + " was not handed out at the start"
			}
			return ""
		}); err != nil {
			t.Fatal(err)
		}
	}
	child := func(owner, name string, controls bool, kind string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: kind, Name: owner, UID: owners[owner], Controller: &controls,
		}}}}
	}
	round := func(when string) {
		t.Helper()
		for owner := range owners {
			name := owner + "-child"
			take := p.comes(owner, when+": a child is created", func() error {
				_, err := secrets.Create(ctx, child(owner, name, true, "ConfigMap"), metav1.CreateOptions{})
				return err
			})
			if take.Gone || take.UID != string(owners[owner]) || take.Class != queue.Changed {
				t.Errorf("%+v", take)
			}
			p.comes(owner, when+": a child changes", func() error {
				_, err := secrets.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"a":"YQ=="}}`), metav1.PatchOptions{})
				return err
			})
			p.comes(owner, when+": a child is deleted", func() error {
				return secrets.Delete(ctx, name, metav1.DeleteOptions{})
			})
		}
	}
	round("one dispatcher")
	// Children that nobody controls, or something else does, are no reason.
	before := p.count("owner-0")
	for name, obj := range map[string]*corev1.Secret{
		"owned": child("owner-0", "owned", false, "ConfigMap"), "other": child("owner-0", "other", true, "Deployment"),
	} {
		if _, err := secrets.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(name, err)
		}
	}
	p.comes("owner-1", "afterwards", func() error {
		_, err := secrets.Create(ctx, child("owner-1", "last", true, "ConfigMap"), metav1.CreateOptions{})
		return err
	})
	if n := p.count("owner-0"); n != before {
		t.Errorf("owner-0 was handed out %d times more", n-before)
	}
	p.start("tier-1")
	time.Sleep(4 * time.Second) // it gets its share
	round("two dispatchers")
	leave()
	round("one has left")
}

// TestResync: all objects are handed out from time to time.
func TestResync(t *testing.T) {
	t.Parallel()
	p := &parents{
		t: t, namespace: controlplane.Namespace(t), takes: map[string][]queue.Take{}, resync: 500 * time.Millisecond,
	}
	var err error
	if p.client, err = kubernetes.NewForConfig(controlplane.For(t).Config()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.start("tier-0")
	for i := range 4 {
		if take := p.comes("one", "round "+strconv.Itoa(i), func() error { return nil }); take.Class == queue.Changed && i > 0 {
			t.Errorf("%+v", take)
		}
	}
}

// A child does not tell the labels of its owner.
func TestOwnsWithSelector(t *testing.T) {
	config := controlplane.For(t).Config()
	r, err := rota.New(config, rota.Options{
		Name: "tier", Namespace: "operators", Identity: rota.Identity{Pod: "tier-0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = keeper.New(config, r, keeper.Options{Kinds: []keeper.Kind{{
		Kind: configMap, Selector: "a=b", Owns: []schema.GroupKind{{Kind: "Secret"}},
	}}})
	if err == nil || !strings.Contains(err.Error(), "kind ConfigMap: owns and selector") {
		t.Errorf("error %v", err)
	}
}
