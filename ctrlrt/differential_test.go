package ctrlrt_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
)

var (
	differentialCalls = flag.Int("differential.calls", 2000, "how many calls TestReadsAreThoseOfAStockManager makes")
	differentialSeed  = flag.Uint64("differential.seed", 1, "the seed of its calls and changes")
)

const (
	// callsPerWorld calls are made between two changes of the objects.
	callsPerWorld = 1000
	// callsAtOnce are compared at the same time.
	callsAtOnce = 4
	// differencesTold bounds what one run reports.
	differencesTold = 12
)

// TestReadsAreThoseOfAStockManager sends random reads to the client of a stock manager and to those of three members,
// with the same options and the same objects. The answers are the same, but for the differences that excuse names.
// Objects do not change while calls are compared, and they change at random in between.
//
// A call that differs is made simpler for as long as it still differs, and is told with its number and the seed.
func TestReadsAreThoseOfAStockManager(t *testing.T) {
	t.Parallel()
	w := newReadWorld(t)
	t.Logf("-differential.seed %d -differential.calls %d", *differentialSeed, *differentialCalls)
	told := map[string]bool{}
	tell := func(name string, c readCall) {
		if w.rest(t) && !w.differs(t, c) {
			return
		}
		c = w.simplest(t, c)
		if what := c.String(); !told[what] {
			told[what] = true
			t.Errorf("%s: %s\n%s", name, what, w.difference(t, c))
		}
		if len(told) == differencesTold {
			t.Fatal("there may be more differences")
		}
	}
	for first := 0; first < *differentialCalls; first += callsPerWorld {
		w.change(t, rand.New(rand.NewPCG(*differentialSeed, uint64(first))))
		w.rest(t)
		w.await(t)
		for _, n := range w.differing(t, first, min(first+callsPerWorld, *differentialCalls)) {
			tell(fmt.Sprint("call ", n), w.call(n))
		}
		for _, c := range w.keptCalls() {
			if w.differs(t, c) {
				tell("a call that is kept", c)
			}
		}
	}
}

// call returns a call of the run by its number.
func (w *readWorld) call(n int) readCall {
	return w.randomCall(rand.New(rand.NewPCG(*differentialSeed, uint64(n)<<1|1)))
}

// differing makes the calls of these numbers, some at a time, and returns those that differ, in order.
func (w *readWorld) differing(t *testing.T, from, to int) []int {
	var (
		mu     sync.Mutex
		out    []int
		wg     sync.WaitGroup
		next   atomic.Int64
		worker = func() {
			for n := from + int(next.Add(1)) - 1; n < to; n = from + int(next.Add(1)) - 1 {
				if w.differs(t, w.call(n)) {
					mu.Lock()
					out = append(out, n)
					mu.Unlock()
				}
			}
		}
	)
	for range callsAtOnce {
		wg.Go(worker)
	}
	wg.Wait()
	slices.Sort(out)
	return out
}

// differs reports whether a call is answered differently each time. An API server that is too busy refuses some
// requests, and what it answers to a caller whose context has ended has a time limit.
func (w *readWorld) differs(t *testing.T, c readCall) bool {
	for range 5 {
		if w.difference(t, c) == "" {
			return false
		}
	}
	return true
}

// simplest leaves out of a call what it can do without and still be answered differently.
func (w *readWorld) simplest(t *testing.T, c readCall) readCall {
	for {
		smaller := c.smaller()
		n := slices.IndexFunc(smaller, func(c readCall) bool { return w.differs(t, c) })
		if n < 0 {
			return c
		}
		c = smaller[n]
	}
}

// answer is what a call returned, by the names of the objects.
type answer struct {
	class   string
	err     error
	objects map[client.ObjectKey]client.Object
	double  bool
	// rest is what a List says of the objects that it left out, or what a Get without an answer does to its variable.
	rest string
}

func (a answer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%s (%v)", a.class, a.err)
	}
	var names []string
	for key := range a.objects {
		names = append(names, key.String())
	}
	slices.Sort(names)
	return fmt.Sprintf("%s, %d objects: %s", a.class, len(names), strings.Join(names, " "))
}

// readers are what managers give callers to read with.
type readers interface {
	GetClient() client.Client
	GetCache() cache.Cache
	GetAPIReader() client.Reader
}

// readerOf returns a manager's reader for a call. An option stands for two of them.
func (c readCall) readerOf(m readers) client.Reader {
	switch c.by {
	case byCache:
		return m.GetCache()
	case byAPIReader:
		return m.GetAPIReader()
	}
	return m.GetClient()
}

// make makes the call. A panic is an answer, too.
func (c readCall) make(ctx context.Context, from client.Reader) (out answer) {
	defer func() {
		if p := recover(); p != nil {
			out = answer{class: "panic", err: fmt.Errorf("%v", p)}
		}
	}()
	if c.ended {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx = ended
	}
	if !c.list {
		obj := c.object()
		err := from.Get(ctx, c.key, obj, c.getOptions()...)
		out = answered(err, obj)
		if err != nil && !equality.Semantic.DeepEqual(obj, c.object()) {
			out.rest = "the variable has changed, without an answer"
		}
		return out
	}
	list := c.objects()
	if err := from.List(ctx, list, c.listOptions()...); err != nil {
		return answered(err)
	}
	var objs []client.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		objs = append(objs, item.(client.Object))
		return nil
	})
	out = answered(err, objs...)
	out.rest = fmt.Sprintf("continue %q, remaining %v", list.GetContinue(), list.GetRemainingItemCount())
	return out
}

func answered(err error, objs ...client.Object) answer {
	switch {
	case apierrors.IsNotFound(err):
		return answer{class: "NotFound", err: err}
	case err != nil:
		return answer{class: "error", err: err}
	}
	a := answer{class: "success", objects: map[client.ObjectKey]client.Object{}}
	for _, obj := range objs {
		key := client.ObjectKeyFromObject(obj)
		_, has := a.objects[key]
		a.double = a.double || has
		a.objects[key] = obj
	}
	return a
}

// stockAnswer returns what the stock manager answers, and what it answers without a limit.
func (w *readWorld) stockAnswer(t *testing.T, c readCall) (want, full answer) {
	from := c.readerOf(w.stock)
	if c.by == byLive {
		from = w.stock.GetAPIReader()
	}
	want = c.make(t.Context(), from).of(w)
	if o, ok := c.effective(); !ok || o.Limit <= 0 {
		return want, want
	}
	return want, c.without(limitOption).make(t.Context(), from).of(w)
}

// expected returns what the members answer, in full and with the limit.
func (w *readWorld) expected(t *testing.T, c readCall) (want, full answer) {
	o, ok := c.effective()
	if !ok || !c.has(fieldOption) || o.FieldSelector == nil || !w.inPlaceOfTheCache(c) {
		return w.stockAnswer(t, c)
	}
	// The API server knows fields, a cache knows indexes.
	_, full = w.stockAnswer(t, c.without(fieldOption))
	full = w.byFields(c, o, full)
	return full.limited(o.Limit), full
}

// limited returns as many objects of an answer, whichever.
func (a answer) limited(limit int64) answer {
	objs := maps.Clone(a.objects)
	for key := range a.objects {
		if limit > 0 && int64(len(objs)) > limit {
			delete(objs, key)
		}
	}
	a.objects = objs
	return a
}

// inPlaceOfTheCache reports whether the API server answers a List in place of the stock manager's cache.
func (w *readWorld) inPlaceOfTheCache(c readCall) bool {
	return c.list && c.form != kindlessForm && !c.live() && !w.shares(c) && !c.plain()
}

// byFields is the answer of an API server, of what a stock manager answers without the field selector.
func (w *readWorld) byFields(c readCall, o client.ListOptions, a answer) answer {
	if a.class != "success" {
		return a
	}
	known := []string{"metadata.name", "metadata.namespace"}
	asked := len(o.FieldSelector.Requirements()) > 0 && !ctrlrt.NoLabels(o.LabelSelector)
	asked = asked && (o.Namespace == "" || c.kind != "PriorityClass" && !strings.Contains(o.Namespace, "/") && o.Namespace != "..")
	for _, r := range o.FieldSelector.Requirements() {
		if asked && !slices.Contains(known, r.Field) {
			return answer{class: "error", err: fmt.Errorf("the API server does not know field %q", r.Field)}
		}
	}
	out := answer{class: "success", objects: map[client.ObjectKey]client.Object{}, rest: a.rest}
	for key, obj := range a.objects {
		about := fields.Set{"metadata.name": key.Name, "metadata.namespace": key.Namespace}
		if o.FieldSelector.Matches(about) {
			out.objects[key] = obj
		}
	}
	return out
}

// difference says how the members' answers differ from what is expected of them; "": not.
func (w *readWorld) difference(t *testing.T, c readCall) string {
	want, full := w.expected(t, c)
	var limit int64
	if o, ok := c.effective(); ok {
		limit = o.Limit
	}
	shared := w.shares(c)
	if shared {
		full, want = full.owned(c.kind), want.owned(c.kind)
	}
	union := map[client.ObjectKey]bool{}
	var got []answer
	for _, m := range w.asked(c) {
		a := m.make(t, c).of(w)
		got = append(got, a)
		var problem string
		switch {
		case a.class != want.class:
			problem = "answers otherwise"
		case a.double:
			problem = "an object twice"
		case a.rest != want.rest && !c.live():
			problem = fmt.Sprintf("%s; stock: %s", a.rest, want.rest)
		case limit > 0 && int64(len(a.objects)) > limit && !c.live(): // an API server may ignore it
			problem = "more than the limit"
		case !shared && !(c.live() && limit > 0) && len(a.objects) != len(want.objects): // other tests have objects, too
			problem = "not as many objects"
		default:
			problem = within(full, a)
		}
		for key := range a.objects {
			if shared && union[key] && problem == "" {
				problem = "two members have " + key.String()
			}
			union[key] = true
		}
		if problem != "" {
			return fmt.Sprintf("member %s: %s\nstock:  %v\nmember: %v", m.pod, problem, want, a)
		}
	}
	if shared && want.class == "success" && len(union) < len(want.objects) {
		return fmt.Sprintf("the shares have %d objects\nstock: %v\nmembers: %v", len(union), want, got)
	}
	return ""
}

// within says which object of an answer is not the same in a stock answer without a limit.
func within(full, a answer) string {
	for key, obj := range a.objects {
		other, has := full.objects[key]
		if !has {
			return "has " + key.String()
		}
		if !equality.Semantic.DeepEqual(other, obj) {
			return fmt.Sprintf("%s is another:\n  stock  %#v\n  member %#v", key, other, obj)
		}
	}
	return ""
}

// owned leaves out what no share of an owned kind holds: objects without a controlling owner.
func (a answer) owned(kind string) answer {
	if kind != "Secret" || a.objects == nil {
		return a
	}
	objs := map[client.ObjectKey]client.Object{}
	for key, obj := range a.objects {
		if metav1.GetControllerOf(obj) != nil {
			objs[key] = obj
		}
	}
	a.objects = objs
	return a
}

// of leaves out what is not of the world.
func (a answer) of(w *readWorld) answer {
	maps.DeleteFunc(a.objects, func(_ client.ObjectKey, obj client.Object) bool { return !w.has(obj) })
	return a
}

// make makes the call from where it comes: a reconcile of this member, or outside.
func (m *readMember) make(t *testing.T, c readCall) answer {
	from := c.readerOf(m)
	if c.from == outside {
		return c.make(t.Context(), from)
	}
	done := make(chan answer, 1)
	select {
	case m.sessions[c.from] <- func(ctx context.Context) { done <- c.make(ctx, from) }:
		return <-done
	case <-time.After(time.Minute):
		return answer{class: "none", err: fmt.Errorf("no reconcile of controller %q takes the call", c.from)}
	}
}
