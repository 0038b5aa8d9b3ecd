package fence_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/cable"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// candidate is a replica of an operator that is not sharded: all of it is the duty lead.
type candidate struct {
	pod *corev1.Pod
	cfg *rest.Config // of its own, which cut does not concern
	r   *rota.Rota
	// plugged is its connection to the API server, which cut ends.
	plugged context.Context
	cut     context.CancelFunc
	// leads and lost get something when it begins to lead, and when its context has ended.
	leads, lost chan struct{}
}

// candidate starts a replica in a Pod. It ends with the test.
func (s *site) candidate(name string) *candidate {
	s.Helper()
	c := &candidate{pod: s.pod(name), leads: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
	c.cfg = s.as(c.pod)
	cfg := rest.CopyConfig(c.cfg)
	c.plugged, c.cut = context.WithCancel(context.Background())
	s.Cleanup(c.cut)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return cable.Plugged(c.plugged, next) })
	var err error
	c.r, err = rota.New(cfg, rota.Options{
		Name: rotaName, Namespace: s.namespace, Identity: rota.Identity{Pod: name, PodUID: string(c.pod.UID)},
		LeaseDuration: 3 * time.Second, RetryPeriod: 300 * time.Millisecond,
	})
	require.NoError(s, err)
	err = c.r.Duty("lead", func(ctx context.Context) error {
		c.leads <- struct{}{}
		<-ctx.Done()
		c.lost <- struct{}{}
		return nil
	})
	require.NoError(s, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.r.Run(ctx); err != nil && c.plugged.Err() == nil {
			s.Errorf("%s: %v", name, err)
		}
	})
	s.Cleanup(func() { stop(); running.Wait() })
	return c
}

// Without sharding: a leader that is cut off stops, another one leads, and what the former still sends is refused
// (docs/client-go.md).
func TestR18LateWritesOfALeader(t *testing.T) {
	t.Parallel()
	s := newSite(t, controlplane.For(t))
	within := func(what string, c <-chan struct{}) {
		t.Helper()
		require.Receive(t, c, time.Minute, "%s", what)
	}
	write := func(c *candidate) error {
		_, err := kubernetes.NewForConfigOrDie(c.cfg).CoreV1().ConfigMaps(s.namespace).Create(t.Context(), configMap("x"), dryRun)
		return err
	}
	a := s.candidate("web-0")
	within("the first replica leads", a.leads)
	b := s.candidate("web-1")
	within("the second has joined", b.r.Joined())
	s.install()
	if err := write(a); err != nil {
		t.Errorf("a write of the leader: %v", err)
	}
	a.cut()
	within("the first has lost the lead", a.lost)
	within("the second leads", b.leads)
	require.Eventually(t, 30*time.Second, func() error {
		if err := write(a); !refused(err) {
			return errors.Join(errors.New("a late write is not refused"), err)
		}
		return nil
	})
	if err := write(b); err != nil {
		t.Errorf("a write of the new leader: %v", err)
	}
}
