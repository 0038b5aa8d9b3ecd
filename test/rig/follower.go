package rig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// Follower keeps the versions of a rota's table that a watch shows.
type Follower struct {
	kube *store.Kubernetes

	mu      sync.Mutex
	history judge.History
	err     error
}

// NewFollower returns a follower of the rota of that name and namespace.
func NewFollower(config *rest.Config, namespace, rota string) (*Follower, error) {
	kube, err := store.NewKubernetes(config, store.Options{Namespace: namespace, Name: rota})
	if err != nil {
		return nil, err
	}
	return &Follower{kube: kube}, nil
}

// Run follows until ctx ends. It calls changed, from one goroutine, with each new version; changed may be nil.
func (f *Follower) Run(ctx context.Context, changed func(*table.Table)) {
	_ = f.kube.WatchTable(ctx, func(s member.Snapshot, _ bool) {
		if f.add(s) && changed != nil {
			changed(s.Table)
		}
	})
	f.kube.Close()
}

// add reports whether the snapshot is a new version.
func (f *Follower) add(s member.Snapshot) bool {
	if s.UID == "" {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Err != nil {
		f.err = fmt.Errorf("the table at resourceVersion %s: %w", s.Version, s.Err)
		return false
	}
	if n := len(f.history); n > 0 && resourceversion.Compare(f.history[n-1].Version, s.Version) >= 0 {
		return false
	}
	f.history = append(f.history, judge.Version{Version: s.Version, At: journal.Now(), Table: s.Table})
	return true
}

// History returns the versions so far. The error is about one that could not be read.
func (f *Follower) History() (judge.History, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clip(f.history), f.err
}

// Latest returns the last table, or nil, and when it was seen first.
func (f *Follower) Latest() (*table.Table, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.history); n > 0 {
		return f.history[n-1].Table, f.history[n-1].At
	}
	return nil, 0
}
