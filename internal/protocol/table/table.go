package table

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// Formats of the table's text that this program reads and writes. A table is written in the lowest format that can
// express it (rule R4).
const (
	// OldestFormat is the lowest format.
	OldestFormat = 1
	// GoneFormat is the lowest format with names of deleted objects (Table.Gone).
	GoneFormat = 2
	// DutyFormat is the lowest format with duties (Table.Duties).
	DutyFormat = 3
	// OrderFormat is the lowest format with a pause and drains (Table.Pause and Table.Drains).
	OrderFormat = 4
	// PlaceFormat is the lowest format with a canary and pins (Table.Canary and Table.Pins).
	PlaceFormat = 5
	// Format is the newest format.
	Format = PlaceFormat
)

// Table is one version of the mapping from slots to members.
//
// Invariants, checked by Valid:
//  1. Runs tile the slots 0 to Total()-1 exactly, in rising order, without gap or overlap. Each duty has its own run.
//  2. Every Owner and Next is a member of Members, or empty; Next differs from Owner.
//  3. A run without an owner has no Next and is not Unsettled.
//  4. No run's Epoch lies above Epoch, and an owned run's Epoch is above 0.
//  5. Members are sorted by ID, without duplicates; names are single words.
//  6. There is a note for the epoch of every Unsettled run; Seal drops the others.
//  7. Gone is sorted, without duplicates, and names objects of Unsettled runs only; Seal drops the others. If it is not
//     empty, every member reads GoneFormat.
//  8. Names of duties are unique. The owner of a duty, and its Next, announce it. Seal removes duties that no member
//     announces. If there are duties, every member reads DutyFormat.
//  9. Drains are sorted by ID, without duplicates. Seal drops drains of members that have left, and the pause with the
//     last member. If there is a pause or a drain, every member reads OrderFormat.
//  10. Pins are sorted by Object, without duplicates. Members have labels only if there are pins. If there are members,
//     and a canary or a pin, every member reads PlaceFormat. Seal drops the canary with the last member.
type Table struct {
	// UID is the metadata.uid of the object that held the table when a member adopted it. It is empty in a new table. If
	// it differs from the object's own UID, the table was restored from a copy (rule R16).
	UID string
	// Epoch rises with every version.
	Epoch uint64
	// Slots is the number of slots. Key is the part of an object that is hashed. Both are fixed for the life of a rota.
	Slots slot.Count
	Key   slot.Key
	// Members are sorted by ID.
	Members []Member
	// Duties are the names of duties. The slot of Duties[i] is Slots + i. A duty keeps its slot as long as a member
	// announces it. The name is empty for a slot without a duty.
	Duties []string
	// Runs tile the slots. Runs of duties come last.
	Runs []Run
	// Notes maps the epoch at which slots changed owners to what their new owner must wait for.
	Notes map[uint64]Note
	// Gone lists the deletions that owners of Unsettled runs have yet to reconcile (rule R15), sorted by CompareGone.
	Gone []Gone
	// Expels are the latest expels, oldest first. They show members that crash in a loop (rule R9).
	Expels []Expel
	// Pause is set while people pause moves between live members. Drains are the members that people want to have no
	// slots, sorted by ID (rule R19).
	Pause  Pause
	Drains []Drain
	// Canary restricts the members of one build to chosen slots. Pins restrict objects to members with certain labels.
	// They are sorted by Object (rule R22).
	Canary Canary
	Pins   []Pin
	// Older is when a member last saw a process that wants to join and does not read DutyFormat, in Unix seconds by the
	// member's wall clock. It is 0 if there was none. Members then announce no duties for a while, so that the process can
	// join (rule R18).
	Older int64
}

// Member is one member of the rota.
type Member struct {
	// ID is unique per process start.
	ID string
	// Pod is the name of the replica. Unlike ID, it survives a restart.
	Pod string
	// PodUID and Container distinguish a restarted container from a second replica. They are empty outside a cluster.
	PodUID, Container string
	// Build names the version of the program. Members of a rollout share it. It may be empty.
	Build string
	// Weight scales the member's fair share. It is at least 1.
	Weight int
	// MinFormat and MaxFormat are the lowest and the highest table format that the member reads.
	MinFormat, MaxFormat int
	// Joined is when the member joined, in Unix seconds by its own wall clock.
	Joined int64
	// Leaving is set on members that are leaving. They get no slots.
	Leaving bool
	// Duties are the names of the duties that the member can do, sorted and separated by commas (JoinDuties). It is a
	// string so that entries can be compared.
	Duties string
	// Labels are the labels that pins ask for, in the form that JoinLabels returns. Members announce them while there are
	// pins.
	Labels string
}

// Run is a range of slots that share an owner and a state.
type Run struct {
	Slots slot.Range
	// Owner is the ID of the owner. It is empty if the slots have none.
	Owner string
	// Epoch is the table's epoch at which Owner got the slots.
	Epoch uint64
	// Next is the ID of the member that the slots are moving to. It is empty if they are not moving.
	Next string
	// Ready is set once Next has loaded the slots' objects and waits for the transfer (rule R6).
	Ready bool
	// Unsettled is set until Owner reports the slots as active. Notes[Epoch] is what Owner waits for.
	Unsettled bool
}

// Cause is the reason why slots changed owners.
type Cause uint8

// Causes.
const (
	CauseUnknown Cause = iota
	// CauseAssigned: the slots had no owner, and no former owner can still be writing.
	CauseAssigned
	// CauseHanded: a live owner gave up the slots and left the versions that the new owner must reach (rule R8).
	CauseHanded
	// CauseExpelled: the former owner was held dead. The new owner waits FenceDelay (rule R7).
	CauseExpelled
)

// String returns the cause's word in the table's text.
func (c Cause) String() string {
	switch c {
	case CauseAssigned:
		return "assigned"
	case CauseHanded:
		return "handed"
	case CauseExpelled:
		return "expelled"
	default:
		return "unknown"
	}
}

// Note is what the new owner of slots must wait for.
type Note struct {
	Cause Cause
	// Versions are the highest resourceVersions that the old owner saw or wrote in the slots, by kind (rule R8). They are
	// set only with CauseHanded.
	Versions Versions
	// Wait is how long the new owner waits if that is longer than its FenceDelay (rule R7). It is set only with
	// CauseExpelled.
	Wait time.Duration
}

// Versions maps a kind in the form of schema.GroupKind ("Website.example.com", "ConfigMap") to a resourceVersion. The
// version is a decimal number or List.
type Versions map[string]string

// Merge returns the higher version of every kind.
func (v Versions) Merge(other Versions) Versions {
	out := maps.Clone(v)
	if out == nil {
		out = Versions{}
	}
	for kind, version := range other {
		if resourceversion.Compare(out[kind], version) < 0 {
			out[kind] = version
		}
	}
	return out
}

// Expel records that a replica was expelled.
type Expel struct {
	// Pod is the Pod of the expelled member.
	Pod string
	// At is the time of the expel, in Unix seconds by the wall clock of the member that did it.
	At int64
}

// New returns the first table of a rota, without members and owners.
func New(slots slot.Count, key slot.Key, epoch uint64) *Table {
	return &Table{
		Epoch: epoch, Slots: slots, Key: key,
		Runs: []Run{{Slots: slot.Range{First: 0, Last: slot.Slot(slots - 1)}}},
	}
}

// Clone returns a deep copy.
func (t *Table) Clone() *Table {
	c := *t
	c.Members = slices.Clone(t.Members)
	c.Duties = slices.Clone(t.Duties)
	c.Runs = slices.Clone(t.Runs)
	c.Gone = slices.Clone(t.Gone)
	c.Expels = slices.Clone(t.Expels)
	c.Drains = slices.Clone(t.Drains) // Pins and the canary's lists are replaced, not changed
	c.Notes = make(map[uint64]Note, len(t.Notes))
	for epoch, note := range t.Notes {
		note.Versions = maps.Clone(note.Versions)
		c.Notes[epoch] = note
	}
	return &c
}

// Member returns the member with the given ID.
func (t *Table) Member(id string) (Member, bool) {
	i, ok := t.find(id)
	if !ok {
		return Member{}, false
	}
	return t.Members[i], true
}

// find is a binary search that copies no Member.
func (t *Table) find(id string) (int, bool) {
	i := sort.Search(len(t.Members), func(i int) bool { return t.Members[i].ID >= id })
	return i, i < len(t.Members) && t.Members[i].ID == id
}

// At returns the run that contains slot s, with Slots narrowed to s alone. It has no owner if the table has no slot s.
func (t *Table) At(s slot.Slot) Run {
	if int(s) >= t.Total() {
		return Run{Slots: slot.Range{First: s, Last: s}}
	}
	r := t.Runs[sort.Search(len(t.Runs), func(i int) bool { return t.Runs[i].Slots.Last >= s })] // copies no other Run
	r.Slots = slot.Range{First: s, Last: s}
	return r
}

// Owned returns the slots that the member owns.
func (t *Table) Owned(id string) slot.Set {
	return t.where(func(r Run) bool { return r.Owner == id })
}

// Coming returns the slots that are moving to the member.
func (t *Table) Coming(id string) slot.Set {
	return t.where(func(r Run) bool { return r.Next == id })
}

func (t *Table) where(match func(Run) bool) slot.Set {
	var set slot.Set
	for _, r := range t.Runs {
		if match(r) {
			set.AddRange(r.Slots)
		}
	}
	return set
}

// Counts returns the number of hash slots that each member owns, which may be 0. Slots without an owner count under "".
func (t *Table) Counts() map[string]int {
	return t.counts(func(r Run) bool { return !t.IsDuty(r.Slots.First) })
}

// DutyCounts returns the number of duties that each member owns.
func (t *Table) DutyCounts() map[string]int {
	return t.counts(func(r Run) bool { return t.Duty(r.Slots.First) != "" })
}

func (t *Table) counts(match func(Run) bool) map[string]int {
	counts := make(map[string]int, len(t.Members)+1)
	for _, m := range t.Members {
		counts[m.ID] = 0
	}
	for _, r := range t.Runs {
		if match(r) {
			counts[r.Owner] += r.Slots.Len()
		}
	}
	return counts
}
