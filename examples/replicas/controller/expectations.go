package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// expectationsTimeout is how long a set waits for what it did to be seen.
const expectationsTimeout = 5 * time.Minute

// expectations are what the controller did for each set and its informer has not shown yet. Until it has, counting Pods
// makes no sense.
type expectations struct {
	mu   sync.Mutex
	sets map[string]*expected
}

type expected struct {
	creations int
	deletions map[types.UID]bool
	until     time.Time
}

func (e *expectations) expect(key string, creations int, deletions map[types.UID]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sets == nil {
		e.sets = map[string]*expected{}
	}
	e.sets[key] = &expected{creations, deletions, time.Now().Add(expectationsTimeout)}
}

func (e *expectations) expectCreations(key string, n int) { e.expect(key, n, nil) }

func (e *expectations) expectDeletions(key string, pods []*corev1.Pod) {
	deletions := map[types.UID]bool{}
	for _, pod := range pods {
		deletions[pod.UID] = true
	}
	e.expect(key, 0, deletions)
}

func (e *expectations) created(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.sets[key]; x != nil {
		x.creations--
	}
}

func (e *expectations) deleted(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.sets[key]; x != nil {
		delete(x.deletions, uid)
	}
}

func (e *expectations) settled(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.sets[key]
	return x == nil || x.creations <= 0 && len(x.deletions) == 0 || time.Now().After(x.until)
}

// expire ends what is expected of a set after a time.
func (e *expectations) expire(key string, after time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.sets[key]; x != nil {
		x.until = time.Now().Add(after)
	}
}

func (e *expectations) forget(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sets, key)
}
