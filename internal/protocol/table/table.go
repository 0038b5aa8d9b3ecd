package table

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// Formats of the table's text that this program reads and writes (rule R4). A table is written in the lowest format
// that can express it.
const (
	// OldestFormat is the lowest format.
	OldestFormat = 1
	// GoneFormat is the lowest format with names of deleted objects: Table.Gone.
	GoneFormat = 2
	// DutyFormat is the lowest format with duties: Table.Duties.
	DutyFormat = 3
	// OrderFormat is the lowest format with what people asked for: Table.Pause and Table.Drains.
	OrderFormat = 4
	// PlaceFormat is the lowest format with what people asked of where objects are: Table.Canary and Table.Pins.
	PlaceFormat = 5
	// Format is the newest format.
	Format = PlaceFormat
)

// Table is one version of who owns what.
//
// Invariants, checked by Valid:
//  1. Runs tile the slots 0 to Total()-1 exactly, in rising order, without gap or overlap. Each duty has its own run.
//  2. Every Owner and Next is a member of Members, or empty; Next differs from Owner.
//  3. A run without owner has no Next and is not Unsettled.
//  4. No run's Epoch lies above Epoch, and an owned run's Epoch is above 0.
//  5. Members are sorted by ID, without duplicates; names are single words.
//  6. There is a note for the epoch of every Unsettled run; Seal drops the others.
//  7. Gone is sorted, without duplicates, and names objects of Unsettled runs only; Seal drops the others. If it is not
//     empty, every member reads GoneFormat.
//  8. Names of duties are unique. The owner of a duty, and its Next, announce it. Seal takes the names of duties that
//     nobody announces off their slots. If there are duties, every member reads DutyFormat.
//  9. Drains are sorted by ID, without duplicates. Seal drops those of members that have left, and the pause with the
//     last member. If there is a pause or a drain, every member reads OrderFormat.
//  10. Pins are sorted by Object, without duplicates. Members have labels only if there are pins. If there are members,
//     and a canary or a pin, every member reads PlaceFormat. Seal drops the canary with the last member.
type Table struct {
	// UID is the metadata.uid of the object that holds the table, as the member that adopted it wrote it. It is empty in a
	// new table. If it differs from the object's own UID, the table was restored from a copy (rule R16).
	UID string
	// Epoch rises with every version ever written.
	Epoch uint64
	// Slots is the number of slots, Key what is hashed. Both are fixed for the life of a rota.
	Slots slot.Count
	Key   slot.Key
	// Members are the members, sorted by ID.
	Members []Member
	// Duties are the names of duties. The slot of Duties[i] is Slots + i. It keeps its slot as long as a member announces
	// it. An empty name is that of a slot without a duty.
	Duties []string
	// Runs tile the slots, those of duties last.
	Runs []Run
	// Notes say, by the epoch at which slots changed hands, what their new owner has to wait for.
	Notes map[uint64]Note
	// Gone are the deletions that owners of Unsettled runs have yet to reconcile (rule R15), sorted by CompareGone.
	Gone []Gone
	// Expels are the latest expels, oldest first. They show members that crash in a loop (rule R9).
	Expels []Expel
	// Pause says whether people paused moves between live members, and Drains which members people want to have no slots
	// (rule R19). Drains are sorted by ID.
	Pause  Pause
	Drains []Drain
	// Canary says that the members of a build own chosen slots only, and Pins which objects are to be with members of
	// certain labels (rule R22). Pins are sorted by Object.
	Canary Canary
	Pins   []Pin
	// Older is when a process was last seen that wants to join and does not read DutyFormat, in Unix seconds by the wall
	// clock of the member that saw it; 0: never. Members announce no duties for a while, so that it can (rule R18).
	Older int64
}

// Member is one member of the rota.
type Member struct {
	// ID is unique per process start.
	ID string
	// Pod is the name of the replica. It survives a restart, unlike ID.
	Pod string
	// PodUID and Container tell a restarted container from a second replica. They are empty outside a cluster.
	PodUID, Container string
	// Build names the version of the program. Members of one rollout share it. It may be empty.
	Build string
	// Weight scales the member's fair share. It is at least 1.
	Weight int
	// Formats are the table formats that the member reads, lowest and highest.
	MinFormat, MaxFormat int
	// Joined is when the member joined, by its own wall clock, in Unix seconds.
	Joined int64
	// Leaving members get no slots.
	Leaving bool
	// Duties are the names of the duties that the member can do, sorted and separated by commas (JoinDuties). It is a
	// string so that entries can be compared.
	Duties string
	// Labels are those that pins may ask for, as JoinLabels returns them. Members announce them while there are pins.
	Labels string
}

// Run is a run of slots that share an owner and a state.
type Run struct {
	Slots slot.Range
	// Owner is the ID of the owner; empty: nobody.
	Owner string
	// Epoch is the table's epoch at which Owner got the slots.
	Epoch uint64
	// Next is the ID of the member to which the slots are moving; empty: they stay.
	Next string
	// Ready says that Next holds the slots' objects and waits for the transfer (rule R6). Without Next: false.
	Ready bool
	// Unsettled says that Owner has not yet said that it is active. Notes[Epoch] tells what it waits for.
	Unsettled bool
}

// Cause says how slots came to their owner.
type Cause uint8

// Causes.
const (
	// CauseUnknown is no cause.
	CauseUnknown Cause = iota
	// CauseAssigned: the slots had no owner before, and nobody can still be writing for them.
	CauseAssigned
	// CauseHanded: a live owner gave the slots up, and left the versions to reach (rule R8).
	CauseHanded
	// CauseExpelled: the slots were taken from a member held dead. The new owner waits FenceDelay (rule R7).
	CauseExpelled
)

// String returns the cause as the table has it.
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

// Note is what the new owner of slots has to know.
type Note struct {
	Cause Cause
	// Versions are, per kind, the highest resourceVersion that the old owner saw or wrote in the slots (rule R8). Only
	// with CauseHanded.
	Versions Versions
	// Wait is how long the new owner waits before it works, if that is longer than its FenceDelay (rule R7). Only with
	// CauseExpelled.
	Wait time.Duration
}

// Versions maps a kind in the form of schema.GroupKind ("Website.example.com", "ConfigMap") to a resourceVersion, which
// is a decimal number, or to List.
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
	// Pod is the expelled member's Pod.
	Pod string
	// At is when, by the wall clock of the member that expelled it, in Unix seconds.
	At int64
}

// New returns the first table of a rota: no members, no owners.
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
	c.Drains = slices.Clone(t.Drains) // Pins, and lists of the canary, are replaced when they change
	c.Notes = make(map[uint64]Note, len(t.Notes))
	for epoch, note := range t.Notes {
		note.Versions = maps.Clone(note.Versions)
		c.Notes[epoch] = note
	}
	return &c
}

// Member returns the member of that ID.
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

// At returns the run that holds slot s, with Slots narrowed to s alone. Nobody owns a slot that the table has not.
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

// Counts returns the number of slots that each member owns, 0 for members without slots. Slots without owner count
// under "". Duties do not count.
func (t *Table) Counts() map[string]int {
	return t.counts(func(r Run) bool { return !t.IsDuty(r.Slots.First) })
}

// DutyCounts is Counts for duties alone.
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
