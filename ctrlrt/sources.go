package ctrlrt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// unservedPatience is how long a member waits for a kind to be served before it joins without the controller that needs
// it. Without the kind's definition, the controller does not start before CacheSyncTimeout.
const unservedPatience = 10 * time.Second

// sources tracks the kinds whose informers a controller still waits for, and its raw sources that have not synced. The
// controller's workers start when none are left.
type sources struct {
	// listError returns why the last list of a kind failed, or nil.
	listError func(schema.GroupKind) error

	mu      sync.Mutex
	pending map[wanted]error // the error is nil if there is none so far
}

// wanted is a kind or a raw source.
type wanted struct {
	gvk schema.GroupVersionKind
	raw *rawSource
}

// String returns the name for messages.
func (w wanted) String() string {
	if w.raw != nil {
		return fmt.Sprintf("source %q of WatchesRawSource", w.raw.name)
	}
	return "informer of " + w.gvk.GroupKind().String()
}

func newSources(listError func(schema.GroupKind) error) *sources {
	return &sources{listError: listError, pending: map[wanted]error{}}
}

func (s *sources) begin(w wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pending[w]; !ok {
		s.pending[w] = nil
	}
}

// note records the error of a pending source, or nil.
func (s *sources) note(w wanted, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pending[w]; ok {
		s.pending[w] = err
	}
}

func (s *sources) end(w wanted, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.pending, w)
	} else {
		s.pending[w] = err
	}
}

// missing explains why the workers have not started.
func (s *sources) missing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for w, err := range s.pending {
		switch {
		case err == nil && w.raw != nil:
			out = append(out, fmt.Sprintf("its %v has not synced: does its cache run, and may this program list and "+
				"watch what it is for?", w))
		case err == nil:
			out = append(out, notSynced(w, s.listError(w.gvk.GroupKind())))
		case meta.IsNoMatchError(err) && w.raw != nil:
			out = append(out, fmt.Sprintf("its %v: %v: is the CustomResourceDefinition installed?", w, err))
		case meta.IsNoMatchError(err):
			out = append(out, fmt.Sprintf("kind %s is not served: is its CustomResourceDefinition installed?",
				w.gvk.GroupKind()))
		default:
			out = append(out, fmt.Sprintf("its %v: %v", w, err))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// notSynced explains that an informer has not synced, and why its last list failed.
func notSynced(w wanted, err error) string {
	switch {
	case err == nil:
		return fmt.Sprintf("its %v has not synced: may this program list and watch it?", w)
	case strings.Contains(err.Error(), "conversion webhook"):
		return fmt.Sprintf("its %v cannot list it: %v (if this program serves that webhook: its Pods are ready only once "+
			"they have joined, so the webhook's Service needs publishNotReadyAddresses: true)", w, err)
	default:
		return fmt.Sprintf("its %v cannot list it: %v", w, err)
	}
}

// unserved returns the sources that wait for a kind to be served, or nil if another one is pending as well.
func (s *sources) unserved() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for w, err := range s.pending {
		switch {
		case !meta.IsNoMatchError(err):
			return nil
		case w.raw != nil:
			out = append(out, w.raw.name)
		default:
			out = append(out, w.gvk.String())
		}
	}
	return out
}

// excuse lets the member join without the controllers whose kinds are not served, so that the other controllers are not
// held up. If workers do not start for another reason, such as a missing permission, the member does not join, since it
// would take slots from members that work.
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
