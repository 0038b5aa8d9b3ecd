package rotatest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/writes"
)

// write is a write that the API server has accepted.
type write struct {
	writes.About
	verb string
	// by is the member, "" for the test. in is the object whose reconcile made the write, if one did.
	by string
	in object
	// unanswered is true if the answer was lost, so it is unknown whether the write was carried out.
	unanswered bool
	// created is true if the object did not exist before. uid is the object's UID, if the answer contained it.
	created bool
	uid     types.UID
	// generateName is the created object's generateName.
	generateName string
	// version is the object's resourceVersion after the write, if the answer contained it.
	version string
	phase   string
	at      time.Duration // since the run's start
}

// what returns the sort of the write, such as "update websites/status".
func (w write) what() string {
	what := w.verb + " " + w.Resource.Resource
	if w.Subresource != "" {
		what += "/" + w.Subresource
	}
	return what
}

// String describes the write for messages.
func (w write) String() string {
	text := fmt.Sprintf("%s %s", w.what(), strings.TrimPrefix(w.Name.String(), "/"))
	if w.in.kind.Kind != "" {
		text += " (in the reconcile of " + w.in.String() + ")"
	}
	if w.by == "" {
		return text + " by the test"
	}
	return text + " by " + w.by
}

// place identifies an object by its resource. Versions of a resource are treated as the same.
type place struct {
	schema.GroupResource
	client.ObjectKey
}

func (w write) place() place { return place{w.Resource.GroupResource(), w.Name} }

// isNoise reports whether writes of a resource do not matter, because event recorders and leader election make them.
func isNoise(r schema.GroupVersionResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io") ||
		r.Resource == "leases" && r.Group == "coordination.k8s.io"
}

// record holds the writes of a run.
type record struct {
	mu     sync.Mutex
	start  time.Time
	phase  string
	writes []write
	// noise holds the creations of Leases and of strays. They are only cleaned up.
	noise []write
	last  time.Time
	// places holds the places of objects that were created.
	places map[place]bool
	// versions maps resources to the versions in which they are read.
	versions map[schema.GroupResource]string
}

// newRecord returns an empty record. It reads resources in the given versions, where there are any.
func newRecord(versions map[schema.GroupResource]string) *record {
	now := time.Now()
	r := &record{start: now, last: now, places: map[place]bool{}, versions: map[schema.GroupResource]string{}}
	maps.Copy(r.versions, versions)
	return r
}

func (r *record) add(w write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isNoise(w.Resource) {
		if w.created && w.Resource.Resource == "leases" {
			r.noise = append(r.noise, w)
		}
		return
	}
	r.last = time.Now()
	w.at, w.phase = r.last.Sub(r.start), r.phase
	r.writes = append(r.writes, w)
	r.places[w.place()] = r.places[w.place()] || w.created
	if of := w.Resource.GroupResource(); r.versions[of] == "" {
		r.versions[of] = w.Resource.Version
	}
}

// enter begins a phase.
func (r *record) enter(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.last = phase, time.Now()
}

// begun reports whether a member has written something in this phase.
func (r *record) begun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.writes, func(w write) bool { return w.by != "" && w.phase == r.phase })
}

// quiet returns how long nothing was written.
func (r *record) quiet() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.last)
}

// touched returns the resources that were written, and the last write of each object, completed from earlier ones.
func (r *record) touched() (resources []schema.GroupVersionResource, objects map[place]write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, version := range r.versions {
		resources = append(resources, of.WithVersion(version))
	}
	slices.SortFunc(resources, func(a, b schema.GroupVersionResource) int { return cmp.Compare(a.String(), b.String()) })
	objects = map[place]write{}
	for _, w := range r.writes {
		if w.Name.Name == "" {
			continue // a collection
		}
		if before, ok := objects[w.place()]; ok {
			w.created = w.created || before.created
			w.uid = cmp.Or(w.uid, before.uid)
		}
		objects[w.place()] = w
	}
	return resources, objects
}

// made reports whether the run created an object at a place.
func (r *record) made(p place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.Name != "" && r.places[p]
}

// reconciled returns the objects whose reconciles wrote something.
func (r *record) reconciled() map[object]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[object]bool{}
	for _, w := range r.writes {
		if w.by != "" && w.in.kind.Kind != "" {
			all[w.in] = true
		}
	}
	return all
}

// adopt adds an object to the cleanup whose creation was not recorded.
func (r *record) adopt(w write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noise = append(r.noise, w)
}

// noisy returns the Leases and strays that were created.
func (r *record) noisy() []write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.noise)
}

// uids returns the UIDs of all objects that were written.
func (r *record) uids() map[types.UID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[types.UID]bool{}
	for _, w := range r.writes {
		all[w.uid] = true
	}
	return all
}

// wrote reports whether the version of an object is, or may be, the result of a write in this run.
func (r *record) wrote(obj metav1.Object) bool {
	if r.lost(obj) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.writes, func(w write) bool {
		return w.version == obj.GetResourceVersion() && (w.uid == "" || w.uid == obj.GetUID())
	})
}

// uncertain reports whether an answer to a member was lost.
func (r *record) uncertain(by string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.writes, func(w write) bool { return w.unanswered && w.by == by })
}

// lost reports whether an object may be the result of a write whose answer was lost.
func (r *record) lost(obj metav1.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.writes, func(w write) bool {
		named := w.Name.Name == obj.GetName()
		generated := w.Name.Name == "" && w.generateName != "" && w.generateName == obj.GetGenerateName()
		return w.unanswered && w.Name.Namespace == obj.GetNamespace() && (named || generated)
	})
}

// creation returns the write that created an object.
func (r *record) creation(uid types.UID) (write, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range slices.Concat(r.writes, r.noise) {
		if w.created && w.uid == uid {
			return w, true
		}
	}
	return write{}, false
}

// sorts returns the sorts of the members' writes in a phase, in order of first occurrence, and their numbers.
func (r *record) sorts(phase string) (sorts []string, number map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number = map[string]int{}
	for _, w := range r.writes {
		if w.by == "" || w.phase != phase {
			continue
		}
		if number[w.what()]++; number[w.what()] == 1 {
			sorts = append(sorts, w.what())
		}
	}
	return sorts, number
}

// hot lists the objects that were written most often recently, if any were written repeatedly.
func (r *record) hot(within time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Since(r.start) - within
	count, last := map[place]int{}, map[place]write{}
	for _, w := range r.writes {
		if w.at >= since && w.by != "" {
			count[w.place()]++
			last[w.place()] = w
		}
	}
	var lines []string
	for p, n := range count {
		if n >= 3 {
			lines = append(lines, fmt.Sprintf("%4d times: %s", n, last[p]))
		}
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	return strings.Join(lines[:min(5, len(lines))], "\n")
}
