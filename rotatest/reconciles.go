package rotatest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/slot"
)

// object is an object of a sharded kind.
type object struct {
	kind schema.GroupKind
	key  types.NamespacedName
}

func (o object) String() string { return describe(o.kind.Kind, o.key) }

// reconcileKey is the context key of the object that is reconciled.
type reconcileKey struct{}

// reconciles tracks the reconciles of all members of a run.
type reconciles struct {
	run *run

	mu sync.Mutex
	// kinds are the sharded kinds that were reconciled.
	kinds map[schema.GroupKind]bool
	// busy maps objects to the members that reconcile them now, with the start times.
	busy map[object]map[*member]time.Time
	// latest is when a member last began to reconcile an object. active is when one last began after a pause.
	latest map[visit]time.Time
	active time.Time
	// failing holds the errors of objects whose last reconcile failed.
	failing map[object]failure
	// wrong describes violations.
	wrong []string
}

// failure is the error of a reconcile.
type failure struct {
	of   *member
	text string
}

type visit struct {
	member *member
	object
}

func newReconciles(r *run) *reconciles {
	return &reconciles{
		run: r, kinds: map[schema.GroupKind]bool{}, busy: map[object]map[*member]time.Time{},
		latest: map[visit]time.Time{}, active: time.Now(), failing: map[object]failure{},
	}
}

// observer observes the reconciles of a member.
type observer struct {
	all    *reconciles
	member *member
}

var _ controllers.Observer = observer{}

// polled is how often an operator may reconcile an object again and still count as quiet.
const polled = 5 * time.Second

// Begin implements controllers.Observer.
func (o observer) Begin(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) context.Context {
	r, what := o.all, object{kind, key}
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx = context.WithValue(ctx, reconcileKey{}, what)
	if o.member.isKilled() {
		return ctx // there is no such object
	}
	now := time.Now()
	r.kinds[kind] = true
	if r.busy[what] == nil {
		r.busy[what] = map[*member]time.Time{}
	}
	for other := range r.busy[what] {
		if byUID := r.run.kit.o.Rota.Key == slot.KeyUID; other != o.member && !byUID {
			r.wrong = append(r.wrong, fmt.Sprintf("%s was reconciled by %s and %s at once", what, other.name, o.member.name))
		}
	}
	r.busy[what][o.member] = now
	if now.Sub(r.latest[visit{o.member, what}]) > polled {
		r.active = now
	}
	r.latest[visit{o.member, what}] = now
	return ctx
}

// visited returns the objects that were reconciled.
func (r *reconciles) visited() map[object]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[object]bool{}
	for v := range r.latest {
		all[v.object] = true
	}
	return all
}

// visitors returns how many members reconciled one of the objects.
func (r *reconciles) visitors(of map[object]bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	members := map[*member]bool{}
	for v := range r.latest {
		if of[v.object] {
			members[v.member] = true
		}
	}
	return len(members)
}

// Result implements controllers.Observer.
func (o observer) Result(kind schema.GroupKind, key types.NamespacedName, err error) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.member.isKilled() {
		return
	}
	delete(o.all.failing, object{kind, key})
	if err != nil {
		o.all.failing[object{kind, key}] = failure{o.member, err.Error()}
	}
}

// End implements controllers.Observer.
func (o observer) End(kind schema.GroupKind, key types.NamespacedName) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	delete(o.all.busy[object{kind, key}], o.member)
}

// gone drops the reconciles of a member that was killed or has ended.
func (r *reconciles) gone(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, who := range r.busy {
		delete(who, m)
	}
	maps.DeleteFunc(r.failing, func(_ object, f failure) bool { return f.of == m })
}

// forget drops the failures of objects that moved to another member, which reconciles all that still exist.
func (r *reconciles) forget() {
	r.mu.Lock()
	all := maps.Clone(r.failing)
	r.mu.Unlock()
	for what, f := range all {
		if f.of.rota.Owns(what.kind, what.key) {
			continue
		}
		r.mu.Lock()
		if r.failing[what] == f {
			delete(r.failing, what)
		}
		r.mu.Unlock()
	}
}

// fails returns the errors of objects whose last reconcile failed.
func (r *reconciles) fails() map[object]string {
	r.forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[object]string{}
	for what, f := range r.failing {
		all[what] = f.text
	}
	return all
}

// writes checks a write that a member is about to send.
func (r *reconciles) writes(m *member, w write) {
	others := r.run.others(m)
	if len(others) == 0 || w.Name.Name == "" {
		return
	}
	kind, err := r.run.kit.mapper.KindFor(w.Resource)
	if err != nil {
		return // a resource without its own kind
	}
	target := object{kind.GroupKind(), w.Name}
	r.mu.Lock()
	sharded := r.kinds[target.kind]
	r.mu.Unlock()
	if !sharded || target != w.in && r.run.kit.o.ForeignWrites {
		return
	}
	for _, other := range others {
		if !other.rota.Owns(target.kind, target.key) || m.rota.Owns(target.kind, target.key) {
			continue
		}
		r.mu.Lock()
		r.wrong = append(r.wrong, fmt.Sprintf("%s is an object of %s, and was written by another member: %s", target,
			other.name, w))
		r.mu.Unlock()
	}
}

// mistakes returns the violations, each once.
func (r *reconciles) mistakes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := slices.Clone(r.wrong)
	slices.Sort(lines)
	lines = slices.Compact(lines)
	const most = 8
	if n := len(lines); n > most {
		lines = append(lines[:most], fmt.Sprintf("... and %d more", n-most))
	}
	return strings.Join(lines, "\n")
}

// restless describes what is going on, empty if nothing is.
func (r *reconciles) restless(quiet time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for what, who := range r.busy {
		for m, since := range who {
			if now.Sub(since) < max(quiet, polled) {
				return fmt.Sprintf("%s reconciles %s", m.name, what)
			}
		}
	}
	if now.Sub(r.active) < quiet {
		return "objects are being reconciled"
	}
	return ""
}

// failures describes the objects whose last reconcile failed.
func (r *reconciles) failures() string {
	return failureText(r.fails())
}

func failureText(failing map[object]string) string {
	var lines []string
	for what, text := range failing {
		lines = append(lines, fmt.Sprintf("the reconcile of %s fails: %s", what, text))
	}
	slices.Sort(lines)
	return strings.Join(lines[:min(5, len(lines))], "\n")
}

// failsNow returns an error if reconciles fail that do not fail with one member.
func failsNow(want, got *state) error {
	fresh := maps.Clone(got.failing)
	maps.DeleteFunc(fresh, func(what object, _ string) bool { return want.failing[what] != "" })
	if len(fresh) == 0 {
		return nil
	}
	return fmt.Errorf("the objects are what they are with one member, but reconciles go on failing, which they do not "+
		"with one:\n%s", indent(failureText(fresh)))
}
