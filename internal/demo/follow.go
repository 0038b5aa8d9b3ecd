package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/check"
	"github.com/rota-dev/rota/internal/journal"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/table"
)

// follower keeps the versions of the table as they come.
type follower struct {
	kube *store.Kubernetes
	// changed is called with each new version, from one goroutine.
	changed func(*table.Table)

	mu      sync.Mutex
	history check.History
	err     error
}

func newFollower(config *rest.Config, changed func(*table.Table)) (*follower, error) {
	kube, err := store.NewKubernetes(config, store.Options{Namespace: rotaNamespace, Name: rotaName})
	if err != nil {
		return nil, err
	}
	return &follower{kube: kube, changed: changed}, nil
}

func (f *follower) run(ctx context.Context) {
	_ = f.kube.WatchTable(ctx, func(s member.Snapshot, _ bool) {
		if s.UID == "" {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if s.Err != nil {
			f.err = fmt.Errorf("the table at resourceVersion %s: %w", s.Version, s.Err)
			return
		}
		if n := len(f.history); n > 0 && resourceversion.Compare(f.history[n-1].Version, s.Version) >= 0 {
			return
		}
		f.history = append(f.history, check.Version{Version: s.Version, At: journal.Now(), Table: s.Table})
		f.changed(s.Table)
	})
	f.kube.Close()
}

// all returns the versions so far.
func (f *follower) all() (check.History, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history[:len(f.history):len(f.history)], f.err
}

// latest returns the last table, or nil, and since when it is that.
func (f *follower) latest() (*table.Table, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.history); n > 0 {
		return f.history[n-1].Table, f.history[n-1].At
	}
	return nil, 0
}
