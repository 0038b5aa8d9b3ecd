package ctrlrt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// unservedPatience is how long a member waits for a kind to be served before it joins without the controller that needs
// it. If a kind's definition is not installed, its controller does not start before CacheSyncTimeout.
const unservedPatience = 10 * time.Second

// sources are the kinds that a controller has asked its cache for and not got yet. Its workers start when it has all.
type sources struct {
	mu      sync.Mutex
	pending map[schema.GroupVersionKind]error // nil: the informer has not synced
}

func newSources() *sources { return &sources{pending: map[schema.GroupVersionKind]error{}} }

func (s *sources) begin(gvk schema.GroupVersionKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pending[gvk]; !ok {
		s.pending[gvk] = nil
	}
}

func (s *sources) end(gvk schema.GroupVersionKind, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.pending, gvk)
	} else {
		s.pending[gvk] = err
	}
}

// missing says why the workers do not start yet.
func (s *sources) missing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for gvk, err := range s.pending {
		switch {
		case err == nil:
			out = append(out, fmt.Sprintf("its informer of %s has not synced: may this program list and watch it?",
				gvk.GroupKind()))
		case meta.IsNoMatchError(err):
			out = append(out, fmt.Sprintf("kind %s is not served: is its CustomResourceDefinition installed?", gvk.GroupKind()))
		default:
			out = append(out, fmt.Sprintf("its informer of %s: %v", gvk.GroupKind(), err))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// unserved returns the kinds that are not served, or nil if something else is missing as well.
func (s *sources) unserved() []schema.GroupVersionKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.pending {
		if !meta.IsNoMatchError(err) {
			return nil
		}
	}
	return slices.Collect(maps.Keys(s.pending))
}

// excuse lets the member join without the controllers whose kinds are not served, so that the others are not held up.
// If anything else keeps a controller's workers from starting, such as a missing permission, the member does not join:
// it would take slots from members that work.
func (m *Manager) excuse(ctx context.Context) {
	timer := time.NewTimer(unservedPatience)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(unservedPatience / 10)
		case <-m.rota.Joined():
			return
		case <-ctx.Done():
			return
		}
		for _, w := range m.allWorkers() {
			select {
			case <-w.controller.Begun():
				continue
			default:
			}
			if kinds := w.sources.unserved(); len(kinds) > 0 {
				m.GetLogger().Error(nil,
					"Kinds are not served; are the CustomResourceDefinitions installed? Joining without the controller that "+
						"needs them: the others are not held up", "controller", w.name, "kinds", kinds)
				w.controller.Started()
			}
		}
	}
}
