package ctrlrt

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// chooser selects the objects that a sharded controller reconciles when this member gets slots. A stock controller that
// starts gets all objects as created, and its predicates select some of them. A chooser asks the same sources about the
// objects of the slots, the cheapest sources first:
//
//  1. The source of For, about the object.
//  2. If that rejects it: the sources of Owns, about the object's children.
//  3. If these reject it as well: the sources of Watches, about all objects of their kinds, in the background.
//
// A source that cannot be asked might have enqueued any object. A controller with such a source gets all objects.
type chooser struct {
	kind    schema.GroupKind // of For
	share   *delivery.Share
	enqueue controllers.Enqueue
	keyOf   func(types.NamespacedName) types.NamespacedName

	mu        sync.Mutex
	blind     bool
	self      []*listener // of For
	others    []*listener // of Owns and Watches
	sought    map[types.NamespacedName]bool
	searching bool
}

// cannotAsk records that the controller has a source that cannot be asked.
func (c *chooser) cannotAsk() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind = true
}

// listen returns an informer for a source of the controller. twin is the handler of the same source of the controller's
// twin, and answers the twin's queue.
func (c *chooser) listen(informer cache.Informer, twin toolscache.ResourceEventHandler, answers *answers,
	listeners *[]*listener,
) cache.Informer {
	return listenedInformer{informer, func(h toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
		l, ok := newListener(h, twin, answers)
		c.mu.Lock()
		defer c.mu.Unlock()
		if !ok {
			c.blind = true
			return h
		}
		*listeners = append(*listeners, l)
		return l
	}}
}

// choose implements controllers.Choose.
func (c *chooser) choose(set slot.Set, keys []types.NamespacedName) map[types.NamespacedName]bool {
	c.mu.Lock()
	self, others := slices.Clone(c.self), slices.Clone(c.others)
	all := c.blind || len(self) == 0
	c.mu.Unlock()
	if all || len(keys) == 0 {
		return nil
	}
	unwanted := make(map[types.NamespacedName]bool, len(keys))
	for _, key := range keys {
		unwanted[key] = true
	}
	c.askAbout(unwanted, set, self)
	c.askAbout(unwanted, set, others)
	if len(others) > 0 && len(unwanted) > 0 {
		c.search(unwanted)
	}
	return unwanted
}

// askAbout removes the keys whose objects, or children, the sources accept.
func (c *chooser) askAbout(unwanted map[types.NamespacedName]bool, set slot.Set, sources []*listener) {
	for _, l := range sources {
		if len(unwanted) == 0 {
			return
		}
		for about, obj := range c.share.Shown(l, set) {
			if unwanted[about] && len(l.ask(obj)) > 0 {
				delete(unwanted, about)
			}
		}
	}
}

// search enqueues the keys for which sources of whole kinds ask. It runs in the background and does not hold up the
// slots, since it calls a map function for each object of these kinds. Searches for slots that come meanwhile are
// combined.
func (c *chooser) search(keys map[types.NamespacedName]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sought == nil {
		c.sought = map[types.NamespacedName]bool{}
	}
	for key := range keys {
		c.sought[key] = true
	}
	if c.searching {
		return
	}
	c.searching = true
	go func() {
		for {
			c.mu.Lock()
			sought, sources := c.sought, slices.Clone(c.others)
			c.sought = nil
			c.searching = len(sought) > 0
			c.mu.Unlock()
			if len(sought) == 0 {
				return
			}
			c.find(sought, sources)
		}
	}()
}

func (c *chooser) find(sought map[types.NamespacedName]bool, sources []*listener) {
	for _, l := range sources {
		for obj := range c.share.ShownWhole(l) {
			for _, r := range l.ask(obj) {
				if key := c.keyOf(r.NamespacedName); sought[key] {
					delete(sought, key)
					c.enqueue([]types.NamespacedName{key}, work.PriorityOpened)
				}
			}
			if len(sought) == 0 {
				return
			}
		}
	}
}
