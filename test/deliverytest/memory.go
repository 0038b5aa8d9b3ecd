package deliverytest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// Memory is an API server in memory that knows one kind, ConfigMap. It has versions, a watch history that can be
// compacted, pages, WatchList, bookmarks, label and shard selectors, and metadata in field selectors. All its methods
// may be called concurrently.
type Memory struct {
	// WatchList makes informers use it.
	WatchList bool
	// Sharding is what it does with shard selectors.
	Sharding Sharding

	mu      sync.Mutex
	version int
	floor   int // versions up to here cannot be watched from
	uids    int
	objects map[types.NamespacedName]*corev1.ConfigMap
	history []change
	grown   chan struct{} // closed and replaced at every change
}

type change struct {
	version  int
	old, new *corev1.ConfigMap // nil: did not exist, does not exist any more
}

// firstVersion is that of an empty server.
const firstVersion = 100

// NewMemory returns an empty server.
func NewMemory() *Memory {
	return &Memory{version: firstVersion, objects: map[types.NamespacedName]*corev1.ConfigMap{},
		grown: make(chan struct{})}
}

var _ Client = (*Memory)(nil)

// Create implements Client.
func (m *Memory) Create(_ context.Context, key types.NamespacedName, labels map[string]string) (Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[key] != nil {
		return Object{}, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: labels,
		UID: m.uid()}}
	return m.change(key, nil, obj), nil
}

// Update implements Client.
func (m *Memory) Update(_ context.Context, key types.NamespacedName) (Object, error) {
	return m.edit(key, nil, func(obj *corev1.ConfigMap) {
		obj.Data = map[string]string{"version": strconv.Itoa(m.version)}
	})
}

// Relabel implements Client.
func (m *Memory) Relabel(_ context.Context, key types.NamespacedName, labels map[string]string) (Object, error) {
	return m.edit(key, labels, func(*corev1.ConfigMap) {})
}

// Adopt implements Client.
func (m *Memory) Adopt(_ context.Context, key types.NamespacedName, owners []metav1.OwnerReference,
	labels map[string]string,
) (Object, error) {
	return m.edit(key, labels, func(obj *corev1.ConfigMap) { obj.OwnerReferences = owners })
}

func (m *Memory) edit(key types.NamespacedName, labels map[string]string,
	edit func(*corev1.ConfigMap),
) (Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.objects[key]
	if old == nil {
		return Object{}, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	obj := old.DeepCopy()
	obj.Labels = maps.Clone(obj.Labels)
	if obj.Labels == nil {
		obj.Labels = map[string]string{}
	}
	for name, value := range labels {
		obj.Labels[name] = value
		if value == "" {
			delete(obj.Labels, name)
		}
	}
	edit(obj)
	return m.change(key, old, obj), nil
}

// Delete implements Client.
func (m *Memory) Delete(_ context.Context, key types.NamespacedName) (Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.objects[key]
	if old == nil {
		return Object{}, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	return m.change(key, old, nil), nil
}

// Put creates or replaces an object, whatever its metadata says.
func (m *Memory) Put(obj *corev1.ConfigMap) Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	old := m.objects[key]
	obj = obj.DeepCopy()
	if old != nil {
		obj.UID = old.UID
	} else {
		obj.UID = m.uid()
	}
	return m.change(key, old, obj)
}

// Get returns a copy of an object; nil: there is none.
func (m *Memory) Get(key types.NamespacedName) *corev1.ConfigMap {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[key].DeepCopy()
}

// uid makes a new UID. Short similar strings would all lie in one slot.
func (m *Memory) uid() types.UID {
	m.uids++
	return types.UID(fmt.Sprintf("%016x-%d", slot.HashName("uid", strconv.Itoa(m.uids)), m.uids))
}

// List implements Client.
func (m *Memory) List(context.Context) ([]Object, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Object
	for _, obj := range m.objects {
		out = append(out, objectOf(obj))
	}
	return out, strconv.Itoa(m.version), nil
}

// Tick raises the version as a write to another kind does, and returns it.
func (m *Memory) Tick() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	return strconv.Itoa(m.version)
}

// Compact forgets the watch history.
func (m *Memory) Compact() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++ // another kind's
	m.floor = m.version
	m.history = nil
}

func (m *Memory) change(key types.NamespacedName, old, obj *corev1.ConfigMap) Object {
	m.version++
	c := change{m.version, old, obj}
	shown := obj
	if obj != nil {
		obj.ResourceVersion = strconv.Itoa(m.version)
		m.objects[key] = obj
	} else {
		delete(m.objects, key)
		c.old = old.DeepCopy()
		c.old.ResourceVersion = strconv.Itoa(m.version)
		shown = c.old
	}
	m.history = append(m.history, c)
	close(m.grown)
	m.grown = make(chan struct{})
	return objectOf(shown)
}

func objectOf(obj metav1.Object) Object {
	return Object{types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}, obj.GetUID(),
		obj.GetResourceVersion(), obj.GetLabels()}
}

// ListWatch returns a ListerWatcher of a namespace, or of all, and of objects with the labels.
func (m *Memory) ListWatch(namespace, selector string) cache.ListerWatcher {
	parsed, err := labels.Parse(selector)
	if err != nil {
		panic(err)
	}
	return &memoryListWatch{m, namespace, parsed}
}

type memoryListWatch struct {
	m         *Memory
	namespace string
	selector  labels.Selector
}

// predicate says whether an object is selected.
type predicate func(*corev1.ConfigMap) bool

func (l *memoryListWatch) IsWatchListSemanticsUnSupported() bool { return !l.m.WatchList }

func (l *memoryListWatch) predicate(ctx context.Context, o metav1.ListOptions) (predicate, error) {
	asked, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	named, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	shard, err := l.m.shard(shardSelector(ctx, o))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return func(obj *corev1.ConfigMap) bool {
		if obj == nil || l.namespace != "" && obj.Namespace != l.namespace {
			return false
		}
		return shard.matches(obj) && l.selector.Matches(labels.Set(obj.Labels)) && asked.Matches(labels.Set(obj.Labels)) &&
			named.Matches(fields.Set{"metadata.name": obj.Name, "metadata.namespace": obj.Namespace})
	}, nil
}

func (l *memoryListWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// memoryToken is the continue token: a snapshot's version and the first name of the next page.
type memoryToken struct {
	Version string
	Next    string
}

func (l *memoryListWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	selects, err := l.predicate(ctx, o)
	if err != nil {
		return nil, err
	}
	token := memoryToken{Version: strconv.Itoa(l.m.version)}
	if o.ResourceVersion == "0" {
		token.Version = strconv.Itoa(l.m.old())
	}
	if o.Continue != "" {
		if err := json.Unmarshal([]byte(o.Continue), &token); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	at, _ := strconv.Atoi(token.Version)
	if at < l.m.floor {
		return nil, apierrors.NewResourceExpired("the continue token is too old")
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: token.Version}}
	for _, obj := range l.m.snapshot(at) {
		name := obj.Namespace + "/" + obj.Name
		if !selects(obj) || name < token.Next {
			continue
		}
		if o.Limit > 0 && int64(len(list.Items)) == o.Limit {
			text, _ := json.Marshal(memoryToken{token.Version, name})
			list.Continue = string(text)
			break
		}
		list.Items = append(list.Items, *obj.DeepCopy())
	}
	return list, nil
}

// old is what a list gets that takes any version: the cache of an API server may be behind. It is a few changes ago.
func (m *Memory) old() int {
	const behind = 3
	if n := len(m.history); n > behind {
		return m.history[n-behind-1].version
	}
	return max(m.floor, firstVersion)
}

// snapshot returns the objects at a version, sorted.
func (m *Memory) snapshot(at int) []*corev1.ConfigMap {
	objects := map[types.NamespacedName]*corev1.ConfigMap{}
	for key, obj := range m.objects {
		objects[key] = obj
	}
	for _, c := range slices.Backward(m.history) {
		if c.version <= at {
			break
		}
		if c.new != nil {
			delete(objects, objectOf(c.new).Key)
		}
		if c.old != nil {
			objects[objectOf(c.old).Key] = c.old
		}
	}
	out := make([]*corev1.ConfigMap, 0, len(objects))
	for _, obj := range objects {
		out = append(out, obj)
	}
	slices.SortFunc(out, func(a, b *corev1.ConfigMap) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out
}

func (l *memoryListWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

func (l *memoryListWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	selects, err := l.predicate(ctx, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &memoryWatch{list: l, selects: selects, out: make(chan watch.Event), cancel: cancel}
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		w.at = l.m.version
		for _, obj := range l.m.snapshot(w.at) {
			if selects(obj) {
				w.initial = append(w.initial, watch.Event{Type: watch.Added, Object: obj.DeepCopy()})
			}
		}
		w.initial = append(w.initial, bookmark(w.at, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	} else {
		at, err := strconv.Atoi(o.ResourceVersion)
		if err != nil {
			cancel()
			return nil, apierrors.NewBadRequest("watch without a version")
		}
		if at < l.m.floor {
			cancel()
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old",
			}}
		}
		w.at = at
		// A real server sends a bookmark two seconds before the timeout; here it comes at once.
		if o.TimeoutSeconds != nil && *o.TimeoutSeconds < 10 {
			w.bookmark = o.AllowWatchBookmarks
			timer := time.AfterFunc(time.Duration(*o.TimeoutSeconds)*time.Second, cancel)
			context.AfterFunc(ctx, func() { timer.Stop() })
		}
	}
	go w.run(ctx)
	return w, nil
}

type memoryWatch struct {
	list     *memoryListWatch
	selects  predicate
	out      chan watch.Event
	cancel   context.CancelFunc
	at       int
	initial  []watch.Event
	bookmark bool
}

func (w *memoryWatch) Stop()                          { w.cancel() }
func (w *memoryWatch) ResultChan() <-chan watch.Event { return w.out }

func bookmark(version int, annotations map[string]string) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version), Annotations: annotations},
	}}
}

func (w *memoryWatch) run(ctx context.Context) {
	defer close(w.out)
	m := w.list.m
	events := w.initial
	for {
		for _, e := range events {
			select {
			case w.out <- e:
			case <-ctx.Done():
				return
			}
		}
		m.mu.Lock()
		if w.at < m.floor {
			status := apierrors.NewResourceExpired("too old").Status()
			events, w.at = []watch.Event{{Type: watch.Error, Object: &status}}, m.floor
			m.mu.Unlock()
			continue
		}
		events = w.since(m)
		if w.bookmark {
			events = append(events, bookmark(m.version, nil))
			w.bookmark = false
		}
		grown := m.grown
		m.mu.Unlock()
		if len(events) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		}
	}
}

// since returns the events after w.at, as the selector sees them.
func (w *memoryWatch) since(m *Memory) []watch.Event {
	var events []watch.Event
	first, _ := slices.BinarySearchFunc(m.history, w.at+1, func(c change, v int) int { return c.version - v })
	for _, c := range m.history[first:] {
		w.at = c.version
		before, after := w.selects(c.old), w.selects(c.new)
		switch {
		case after && before:
			events = append(events, watch.Event{Type: watch.Modified, Object: c.new.DeepCopy()})
		case after:
			events = append(events, watch.Event{Type: watch.Added, Object: c.new.DeepCopy()})
		case before:
			gone := c.old.DeepCopy()
			gone.ResourceVersion = strconv.Itoa(c.version)
			events = append(events, watch.Event{Type: watch.Deleted, Object: gone})
		}
	}
	return events
}
