package coverage

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Digests are the digests of slots, by kind. A slot without objects may be left out.
type Digests = sharding.Digests

// Report is what one member reports about itself.
type Report struct {
	// Member is the member's ID.
	Member string
	// Serial increases with every report that the member publishes. A report was made after any report with a lower serial
	// could be read.
	Serial uint64
	// Open are the slots whose keys the member admits.
	Open slot.Set
	// Fold is how many neighboring slots one digest covers, a power of two. The digest is stored under the first of them
	// and covers those that are open. With 0 or 1, each slot has its own digest. Encode folds reports that would be too
	// large.
	Fold int
	// Digests are the digests of open slots. Kinds without objects are included.
	Digests Digests
	// Owners are, for kinds sharded by their controlling owners, the kinds of the owners, and whether these are
	// Owners maps kinds that are sharded by their controlling owners to the owners' kinds; the value is true if these are
	// namespaced.
	Owners map[schema.GroupKind]map[schema.GroupKind]bool
	// Selections maps each kind to what its informers select, apart from slots, in order. A kind is missing if that is
	// unknown. It is nil in reports of older builds.
	Selections map[schema.GroupKind][]sharding.Selection
	// Setup maps the names of settings to the member's values; see the constants Setting….
	Setup map[string]string
	// Waiting is how long the oldest key of a slot has been waiting for a worker, in whole seconds, if more than 1 s.
	Waiting map[slot.Slot]time.Duration
	// Moving is the least time that a slot has been in the current phase of its move to the member, in whole seconds. It
	// leaves out moves that have just begun. It includes the slots of duties.
	Moving map[slot.Slot]time.Duration
	// Loads are how many workers the keys of slots have kept busy on average over some minutes, to a thousandth, in slot
	// order. Smaller loads are left out. If they take too much space, Encode adds up neighboring slots. It is nil in
	// reports of older builds.
	Loads []Load
	// Hottest are the objects that keep the most workers busy, hottest first. If they take too much space, Encode leaves
	// out the last. Reports of older builds have none.
	Hottest []HotObject
	// Trial holds the results of the member's reconciles in the current step of a canary. It is nil if no canary runs or
	// the member did not see the step begin.
	Trial *Trial
	// Waits describes what all work of the member waits for (rota.Status.Waiting), empty if work goes on.
	Waits string
	// Handovers are the last handovers of slots and duties to the member, newest first. If they take too much space,
	// Encode leaves out the oldest.
	Handovers []Handover
	// Would is what a member of a shadow would hold, by kind. It is nil unless the member is a shadow.
	Would []Would
	// Refused are the kinds that the member cannot list or watch.
	Refused []Refused
	// Unlabelled are the kinds with objects, in the slots Without, that the member cannot label. See Refused.Unlabelled.
	Unlabelled []Refused
	// Health describes reconciles that hang or fail. Reports of older builds have none.
	Health Health
	// Blocked are the controllers whose workers all hang while other objects wait. Reports of older builds have none.
	Blocked []Blocked
	// Written is when the report was published, on the API server's clock, in whole seconds, or zero if unknown. It is not
	// encoded; Reports.Read sets it.
	Written time.Time
}

// Fields of a report's data.
const (
	fieldMember    = "member"
	fieldSerial    = "serial"
	fieldOpen      = "open"
	fieldFold      = "fold"
	fieldObjects   = "objects"
	fieldSetup     = "setup"
	fieldWaiting   = "waiting"
	fieldHandovers = "handovers"
	fieldWaits     = "waits"
	fieldMoving    = "moving"
	fieldLoads     = "loads"
	fieldHottest   = "hottest"
	fieldTrial     = "canary"
)

const (
	// maxObjects is the size in bytes above which digests are folded. An object's annotations hold 256 KiB, and the other
	// fields take less than 100 KiB. A member writes all of it every few seconds.
	maxObjects = 128 << 10
	// maxReport is the size in bytes above which a report is refused. Only the names of thousands of kinds take that much.
	maxReport = 250 << 10
	// maxLoads is the size in bytes above which loads of neighboring slots are added up.
	maxLoads = 16 << 10
	// usualReport is the size in bytes above which handovers are left out.
	usualReport = 230 << 10
	// minLine is the length of the shortest digest as a line.
	minLine = len("0 1 0123456789abcdef\n")
)

// Encode returns the report as text, for annotations:
//
//	member: web-0-x7k2p
//	serial: "17"
//	open: 0-84 90
//	fold: "1"                         slots in one line
//	objects: |
//	  Website.web.example.com         a kind
//	  0 12 5f3ac0de00000001           slot, number of objects, XOR of their keys' hashes
//	  ConfigMap owned-by Website.web.example.com:namespaced
//	selections: |                     label selector, field selector, namespaces, kinds
//	  "" "" team-a,team-b ConfigMap
//	  "tier=web" "" * Website.web.example.com
//	setup: |
//	  LeaseDuration 15s
//	waiting: |
//	  7 12                            slot, seconds
//	moving: |
//	  60 16-21 90                     seconds, slots
//	loads: |
//	  7 1250                          slots, thousandths of a worker
//	  16-21 40
//	hottest: |                        kind, object, slot, thousandths of a worker, controller
//	  Website.web.example.com "team-a/hello-11" 109 810 "website"
//	trial: v8 1763712000 0 120 1 412 290 3 280 8.24 0.2 -1648 6600 …    build, began, step, objects, failing, tries,
//	                                changed, failed, times
//	waits: this member works on nothing and waits for …
//	would: |                          of a shadow: kind, objects, unlabelled, changed, in so many seconds
//	  Website.web.example.com 412 412 37 600
//	refused: |                        kind, since, slots without it, error
//	  Website.web.example.com 2026-11-23T11:52:00Z 0-21 "conversion webhook … failed: …"
//	unlabelled: |                     kind, since, slots of the objects, number and error
//	  Website.web.example.com 2026-11-23T11:52:00Z 40,109 "objects: 2, the first: label websites… denied"
//	health: |                         hanging, failing; kind, object, slot, running since, failures, panics, since, last
//	  0 1
//	  Website.web.example.com "team-a/hello-11" 109 - 14 0 2026-11-23T11:52:00Z 2026-11-23T11:59:40Z "website" "denied"
//	blocked: |                        controller, workers, objects that wait, seconds of the oldest
//	  "website" 1 21 240
//	handovers: |                      epoch, end, cause, from, warm, drain, activate, number of slots, slots or duty
//	  1763712345071 2026-11-23T12:00:00.000Z handed web-1-p3m9q 210ms 55ms 12ms 22 0-21
//	  1763712331004 2026-11-23T11:59:40.120Z expelled - 0s 0s 2.61s 1 duty:collect-garbage
//
// With many kinds and slots, one line covers several slots, 2, 4, 8 or more; a finding then lists all of them. Encode
// returns an error if there are more kinds than fit into annotations.
func (r *Report) Encode() (map[string]string, error) {
	fold, lines := max(1, r.Fold), 0
	for _, digests := range r.Digests {
		lines += len(digests)
	}
	for lines/fold*minLine > maxObjects && fold < slot.MaxCount {
		fold *= 2
	}
	objects := r.encodeObjects(fold)
	for len(objects) > maxObjects && fold < slot.MaxCount {
		fold *= 2
		objects = r.encodeObjects(fold)
	}
	var open []string
	for _, run := range r.Open.Ranges() {
		open = append(open, run.String())
	}
	var setup strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Setup)) {
		fmt.Fprintf(&setup, "%s %s\n", name, r.Setup[name])
	}
	data := map[string]string{
		fieldMember: r.Member, fieldSerial: strconv.FormatUint(r.Serial, 10), fieldOpen: strings.Join(open, " "),
		fieldFold: strconv.Itoa(fold), fieldObjects: objects, fieldSetup: setup.String(), fieldWaiting: encodeAges(r.Waiting),
	}
	if r.Waits != "" {
		data[fieldWaits] = r.Waits
	}
	if len(r.Moving) > 0 {
		data[fieldMoving] = encodeMoving(r.Moving)
	}
	if r.Loads != nil {
		data[fieldLoads] = encodeLoads(r.Loads)
	}
	if len(r.Hottest) > 0 {
		data[fieldHottest] = encodeHottest(r.Hottest)
	}
	if r.Trial != nil {
		data[fieldTrial] = r.Trial.encode()
	}
	if len(r.Refused) > 0 {
		data[fieldRefused] = encodeRefused(r.Refused)
	}
	if len(r.Unlabelled) > 0 {
		data[fieldUnlabelled] = encodeRefused(r.Unlabelled)
	}
	if len(r.Would) > 0 {
		data[fieldWould] = encodeWould(r.Would)
	}
	if len(r.Blocked) > 0 {
		data[fieldBlocked] = encodeBlocked(r.Blocked)
	}
	if selections := r.encodeSelections(); len(selections) > 0 && len(selections) <= maxSelections {
		data[fieldSelections] = selections
	}
	n := Size(data)
	if room := min(maxHealth, usualReport-n-len(fieldHealth)); room > 0 && r.Health.Hanging+r.Health.Failing > 0 {
		data[fieldHealth] = encodeHealth(r.Health, room)
		n = Size(data)
	}
	if room := min(maxHandovers, usualReport-n-len(fieldHandovers)); room > 0 && len(r.Handovers) > 0 {
		data[fieldHandovers] = encodeHandovers(r.Handovers, room)
	}
	if n > maxReport {
		return nil, fmt.Errorf("report of %s: %d kinds take %d bytes, more than the %d that annotations have room for: "+
			"shard fewer kinds in one rota",
			r.Member, len(r.Digests), n, maxReport)
	}
	return data, nil
}

// Size returns the size of the data in bytes.
func Size(data map[string]string) int {
	n := 0
	for field, text := range data {
		n += len(field) + len(text)
	}
	return n
}

func (r *Report) encodeObjects(fold int) string {
	var out []byte
	for _, kind := range slices.SortedFunc(maps.Keys(r.Digests), byName) {
		out = append(out, kind.String()...)
		for i, owner := range slices.SortedFunc(maps.Keys(r.Owners[kind]), byName) {
			if i == 0 {
				out = append(out, " "+ownedBy...)
			}
			out = fmt.Appendf(out, " %s:%s", owner, scopeName(r.Owners[kind][owner]))
		}
		out = append(out, '\n')
		digests := Fold(r.Digests[kind], fold)
		for _, n := range slices.Sorted(maps.Keys(digests)) {
			d := digests[n]
			out = fmt.Appendf(out, "%d %d %016x\n", n, d.Objects, d.Hashes)
		}
	}
	return string(out)
}

// Fold combines the digests of each group of neighboring slots under the group's first slot. slots is the size of a
// group, a power of two.
func Fold(digests map[slot.Slot]sharding.Digest, slots int) map[slot.Slot]sharding.Digest {
	if slots <= 1 {
		return digests
	}
	out := map[slot.Slot]sharding.Digest{}
	for n, d := range digests {
		first := firstOf(n, slots)
		sum := out[first]
		out[first] = sharding.Digest{Objects: sum.Objects + d.Objects, Hashes: sum.Hashes ^ d.Hashes}
	}
	return out
}

// firstOf returns the first slot of the group that a slot is folded into.
func firstOf(n slot.Slot, slots int) slot.Slot { return n &^ slot.Slot(slots-1) }

// encodeAges writes a line for each slot, with whole seconds.
func encodeAges(ages map[slot.Slot]time.Duration) string {
	var out strings.Builder
	for _, n := range slices.Sorted(maps.Keys(ages)) {
		fmt.Fprintf(&out, "%d %d\n", n, int64(ages[n]/time.Second))
	}
	return out.String()
}

// encodeMoving writes a line for each age, with whole seconds and the slots of that age.
func encodeMoving(moving map[slot.Slot]time.Duration) string {
	by := map[int64]slot.Set{}
	for s, age := range moving {
		set := by[int64(age/time.Second)]
		set.Add(s)
		by[int64(age/time.Second)] = set
	}
	var out strings.Builder
	for _, seconds := range slices.Sorted(maps.Keys(by)) {
		set := by[seconds]
		fmt.Fprintf(&out, "%d", seconds)
		for _, run := range set.Ranges() {
			fmt.Fprintf(&out, " %s", run)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (r *Report) decodeMoving(data map[string]string) (map[slot.Slot]time.Duration, error) {
	out := map[slot.Slot]time.Duration{}
	for i, line := range lines(data[fieldMoving]) {
		words := strings.Fields(line)
		if len(words) < 2 {
			return nil, r.lineError(fieldMoving, i, line)
		}
		seconds, err := strconv.ParseUint(words[0], 10, 31)
		if err != nil {
			return nil, r.lineError(fieldMoving, i, line)
		}
		for _, word := range words[1:] {
			run, err := slot.ParseRange(word)
			if err != nil {
				return nil, r.lineError(fieldMoving, i, line)
			}
			for s := run.First; s <= run.Last; s++ {
				out[s] = time.Duration(seconds) * time.Second
			}
		}
	}
	return out, nil
}

func (r *Report) decodeAges(field string, data map[string]string) (map[slot.Slot]time.Duration, error) {
	out := map[slot.Slot]time.Duration{}
	for i, line := range lines(data[field]) {
		words := strings.Fields(line)
		if len(words) != 2 {
			return nil, r.lineError(field, i, line)
		}
		n, err := parseSlot(words[0])
		seconds, numErr := strconv.ParseUint(words[1], 10, 31)
		if err != nil || numErr != nil {
			return nil, r.lineError(field, i, line)
		}
		out[n] = time.Duration(seconds) * time.Second
	}
	return out, nil
}

// Decode is the inverse of Encode. It ignores unknown fields, which come from newer builds. The error includes the
// field and the line.
func Decode(data map[string]string) (*Report, error) {
	r := &Report{Member: data[fieldMember], Digests: Digests{}, Owners: map[schema.GroupKind]map[schema.GroupKind]bool{},
		Waits: data[fieldWaits]}
	if r.Member == "" {
		return nil, fmt.Errorf("report: field %s is empty", fieldMember)
	}
	var err error
	if r.Serial, err = strconv.ParseUint(data[fieldSerial], 10, 64); err != nil {
		return nil, fmt.Errorf("report of %s: field %s: %q is not a number", r.Member, fieldSerial, data[fieldSerial])
	}
	if r.Fold, err = strconv.Atoi(data[fieldFold]); err != nil || slot.Count(r.Fold).Validate() != nil {
		return nil, fmt.Errorf("report of %s: field %s: %q must be a power of two from 1 to %d", r.Member, fieldFold,
			data[fieldFold], slot.MaxCount)
	}
	for _, word := range strings.Fields(data[fieldOpen]) {
		first, last, many := strings.Cut(word, "-")
		if !many {
			last = first
		}
		a, aErr := parseSlot(first)
		b, bErr := parseSlot(last)
		if aErr != nil || bErr != nil || a > b {
			return nil, fmt.Errorf("report of %s: field %s: %q is neither a slot nor a range", r.Member, fieldOpen, word)
		}
		r.Open.AddRange(slot.Range{First: a, Last: b})
	}
	if err := r.decodeObjects(data[fieldObjects]); err != nil {
		return nil, err
	}
	if err := r.decodeSelections(data[fieldSelections]); err != nil {
		return nil, err
	}
	for i, line := range lines(data[fieldSetup]) {
		name, value, ok := strings.Cut(line, " ")
		if !ok || name == "" {
			return nil, r.lineError(fieldSetup, i, line)
		}
		if r.Setup == nil {
			r.Setup = map[string]string{}
		}
		r.Setup[name] = value
	}
	if r.Waiting, err = r.decodeAges(fieldWaiting, data); err != nil {
		return nil, err
	}
	if _, ok := data[fieldMoving]; ok { // reports of older builds have none
		if r.Moving, err = r.decodeMoving(data); err != nil {
			return nil, err
		}
	}
	if text, ok := data[fieldLoads]; ok {
		if err := r.decodeLoads(text); err != nil {
			return nil, err
		}
	}
	if err := r.decodeHottest(data[fieldHottest]); err != nil {
		return nil, err
	}
	if err := r.decodeTrial(data[fieldTrial]); err != nil {
		return nil, err
	}
	if err := r.decodeWould(data[fieldWould]); err != nil {
		return nil, err
	}
	if r.Refused, err = r.decodeRefused(fieldRefused, data[fieldRefused]); err != nil {
		return nil, err
	}
	if r.Unlabelled, err = r.decodeRefused(fieldUnlabelled, data[fieldUnlabelled]); err != nil {
		return nil, err
	}
	if err := r.decodeHealth(data[fieldHealth]); err != nil {
		return nil, err
	}
	if err := r.decodeBlocked(data[fieldBlocked]); err != nil {
		return nil, err
	}
	for i, line := range lines(data[fieldHandovers]) { // reports of older builds have none
		h, err := parseHandover(line)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", r.lineError(fieldHandovers, i, line), err)
		}
		r.Handovers = append(r.Handovers, h)
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
			kind, r.Digests[k] = &k, map[slot.Slot]sharding.Digest{}
			if err := r.decodeOwners(k, words[1:]); err != nil {
				return r.lineError(fieldObjects, i, line)
			}
		case len(words) == 3 && kind != nil:
			n, err := parseSlot(words[0])
			count, countErr := strconv.ParseUint(words[1], 10, 31)
			hashes, hashErr := strconv.ParseUint(words[2], 16, 64)
			if err != nil || countErr != nil || hashErr != nil || n != firstOf(n, r.Fold) {
				return r.lineError(fieldObjects, i, line)
			}
			r.Digests[*kind][n] = sharding.Digest{Objects: int(count), Hashes: hashes}
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
			return fmt.Errorf("%q is not an owner", word)
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
		return 0, fmt.Errorf("%q is not a slot", text)
	}
	return slot.Slot(n), nil
}
