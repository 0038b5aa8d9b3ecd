package coverage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/slot"
)

// Digests are the digests of slots, by kind. A slot without objects may be left out.
type Digests map[schema.GroupKind]map[slot.Slot]delivery.Digest

// Report is what one member says of itself.
type Report struct {
	// Member is its ID.
	Member string
	// Open are the slots whose keys it admits.
	Open slot.Set
	// Digests are those of open slots. A kind of which it has no objects is in it nevertheless.
	Digests Digests
	// Owners are, of kinds that are sharded by their controlling owners, the kinds of these, and whether they are namespaced.
	Owners map[schema.GroupKind]map[schema.GroupKind]bool
	// Waiting is how long the oldest key of a slot has been waiting for a worker, in whole seconds, where that is more than 1 s.
	Waiting map[slot.Slot]time.Duration
}

// Fields of a report's data.
const (
	fieldMember  = "member"
	fieldOpen    = "open"
	fieldObjects = "objects"
	fieldWaiting = "waiting"
)

// Encode returns the report as text, for a ConfigMap's data:
//
//	member: web-0-x7k2p
//	open: 0-84 90
//	objects: |
//	  Website.web.example.com         a kind
//	  0 12 5f3ac0de00000001           slot, number of objects, XOR of their keys' hashes
//	  ConfigMap owned-by Website.web.example.com:namespaced
//	waiting: |
//	  7 12                            slot, seconds
func (r *Report) Encode() map[string]string {
	var objects, waiting strings.Builder
	byName := func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) }
	for _, kind := range slices.SortedFunc(maps.Keys(r.Digests), byName) {
		objects.WriteString(kind.String())
		for i, owner := range slices.SortedFunc(maps.Keys(r.Owners[kind]), byName) {
			if i == 0 {
				objects.WriteString(" " + ownedBy)
			}
			fmt.Fprintf(&objects, " %s:%s", owner, scopeName(r.Owners[kind][owner]))
		}
		objects.WriteByte('\n')
		for _, n := range slices.Sorted(maps.Keys(r.Digests[kind])) {
			d := r.Digests[kind][n]
			fmt.Fprintf(&objects, "%d %d %016x\n", n, d.Objects, d.Hashes)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(r.Waiting)) {
		fmt.Fprintf(&waiting, "%d %d\n", n, int64(r.Waiting[n]/time.Second))
	}
	var open []string
	for _, run := range r.Open.Ranges() {
		open = append(open, run.String())
	}
	return map[string]string{
		fieldMember: r.Member, fieldOpen: strings.Join(open, " "),
		fieldObjects: objects.String(), fieldWaiting: waiting.String(),
	}
}

// Decode is the inverse of Encode. The error names the field and the line.
func Decode(data map[string]string) (*Report, error) {
	r := &Report{Member: data[fieldMember], Digests: Digests{}, Owners: map[schema.GroupKind]map[schema.GroupKind]bool{}, Waiting: map[slot.Slot]time.Duration{}}
	if r.Member == "" {
		return nil, fmt.Errorf("report: field %s is empty", fieldMember)
	}
	for _, word := range strings.Fields(data[fieldOpen]) {
		first, last, many := strings.Cut(word, "-")
		if !many {
			last = first
		}
		a, aErr := parseSlot(first)
		b, bErr := parseSlot(last)
		if aErr != nil || bErr != nil || a > b {
			return nil, fmt.Errorf("report of %s: field %s: %q is no slot and no range of slots", r.Member, fieldOpen, word)
		}
		r.Open.AddRange(slot.Range{First: a, Last: b})
	}
	if err := r.decodeObjects(data[fieldObjects]); err != nil {
		return nil, err
	}
	for i, line := range lines(data[fieldWaiting]) {
		words := strings.Fields(line)
		if len(words) != 2 {
			return nil, r.lineError(fieldWaiting, i, line)
		}
		n, err := parseSlot(words[0])
		seconds, numErr := strconv.ParseUint(words[1], 10, 31)
		if err != nil || numErr != nil {
			return nil, r.lineError(fieldWaiting, i, line)
		}
		r.Waiting[n] = time.Duration(seconds) * time.Second
	}
	return r, nil
}

func (r *Report) decodeObjects(text string) error {
	var kind *schema.GroupKind
	for i, line := range lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 1 || len(words) > 1 && words[1] == ownedBy:
			k := schema.ParseGroupKind(words[0])
			kind, r.Digests[k] = &k, map[slot.Slot]delivery.Digest{}
			if err := r.decodeOwners(k, words[1:]); err != nil {
				return r.lineError(fieldObjects, i, line)
			}
		case len(words) == 3 && kind != nil:
			n, err := parseSlot(words[0])
			count, countErr := strconv.ParseUint(words[1], 10, 31)
			hashes, hashErr := strconv.ParseUint(words[2], 16, 64)
			if err != nil || countErr != nil || hashErr != nil {
				return r.lineError(fieldObjects, i, line)
			}
			r.Digests[*kind][n] = delivery.Digest{Objects: int(count), Hashes: hashes}
		default:
			return r.lineError(fieldObjects, i, line)
		}
	}
	return nil
}

// ownedBy precedes the kinds of owners.
const ownedBy = "owned-by"

func scopeName(namespaced bool) string {
	if namespaced {
		return "namespaced"
	}
	return "cluster"
}

func (r *Report) decodeOwners(kind schema.GroupKind, words []string) error {
	if len(words) == 0 {
		return nil
	}
	r.Owners[kind] = map[schema.GroupKind]bool{}
	for _, word := range words[1:] {
		owner, scope, _ := strings.Cut(word, ":")
		if owner == "" || scope != scopeName(true) && scope != scopeName(false) {
			return fmt.Errorf("%q is no owner", word)
		}
		r.Owners[kind][schema.ParseGroupKind(owner)] = scope == scopeName(true)
	}
	if len(r.Owners[kind]) == 0 {
		return fmt.Errorf("no owners after %s", ownedBy)
	}
	return nil
}

func (r *Report) lineError(field string, i int, line string) error {
	return fmt.Errorf("report of %s: field %s, line %d: cannot read %q", r.Member, field, i+1, line)
}

func lines(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == '\n' })
}

func parseSlot(text string) (slot.Slot, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n >= slot.MaxCount {
		return 0, fmt.Errorf("%q is no slot", text)
	}
	return slot.Slot(n), nil
}
