package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/slot"
)

// The table's text is a map of fields. Each member, run, note and expel is a line of words that are separated by one
// space, so that `kubectl get configmap -o yaml` shows the text as it is:
//
//	format: "1"           2 if there is a field gone, 3 if there are duties, 4 if there are orders
//	uid: 7a0c…            metadata.uid of the ConfigMap
//	epoch: "43"
//	slots: "256"
//	key: Name
//	members: |            ID pod podUID container build weight formats joined [leaving]
//	  web-0-x7k2p web-0 - - v7 1 1-1 1763712000
//	runs: |               slots owner epoch [-> next [ready]] [unsettled]
//	  0-84 web-0-x7k2p 41
//	  85-127 web-1-p3m9q 41 -> web-0-x7k2p ready
//	  128-255 -
//	notes: |              epoch cause [kind=version or kind=list …] [wait=milliseconds]
//	  41 handed websites.example.com=1234
//	gone: |               slot kind namespace/name …; without a namespace, the name alone
//	  131 websites.example.com default/a default/b
//	duties: |             name slot owner [epoch [-> next [ready]] [unsettled]]; "-" for a slot without a duty
//	  report 256 web-0-x7k2p 41
//	able: |               slots member …: who can do these duties; * stands for all members in no other line
//	  256 *
//	expels: |             pod unix-seconds
//	  web-2 1763711000
//	orders: |             pause since by [reason], drain ID pod podUID container since lost by [reason]
//	                        canary build state steps step began every namespaces verdict since by [reason]
//	  pause 1763712000 admin bad release
//	  canary v8 runs 5,20,50,100 0 1763712000 600 - - 1763711990 admin
//	pins: |               object labels since by [reason]
//	  team-a/website pool=large 1763712000 admin
//	labels: |             ID labels
//	  web-0-x7k2p pool=large,zone=a
//	older: "1763711000"   see Table.Older
//	podUIDs: a b c        of all members, for policies that are written in CEL
//
// Large tables are abbreviated, see longFormUpTo.
const (
	fieldFormat  = "format"
	fieldUID     = "uid"
	fieldEpoch   = "epoch"
	fieldSlots   = "slots"
	fieldKey     = "key"
	fieldMembers = "members"
	fieldRuns    = "runs"
	fieldNotes   = "notes"
	fieldGone    = "gone"
	fieldDuties  = "duties"
	fieldAble    = "able"
	fieldExpels  = "expels"
	fieldOrders  = "orders"
	fieldPins    = "pins"
	fieldLabels  = "labels"
	fieldOlder   = "older"
	// FieldPodUIDs is the field with the members' POD_UIDs, separated by spaces. In a large table "-" stands for a member
	// without one.
	FieldPodUIDs = "podUIDs"
)

// ErrFormat is wrapped by Decode's error for a table that a newer program wrote.
var ErrFormat = errors.New("unknown table format")

// Encode returns the table's text. The table must be Valid.
func Encode(t *Table) map[string]string {
	var members, runs, notes, expels strings.Builder
	var podUIDs []string
	a := abbreviate(t)
	for _, m := range t.Members {
		if line, ok := a.short(m); ok {
			members.WriteString(line)
		} else {
			fmt.Fprintf(&members, "%s %s %s %s %d", m.ID, orNone(m.Pod), orNone(m.PodUID), classWords(m), m.Joined)
		}
		if m.Leaving {
			members.WriteString(" leaving")
		}
		members.WriteByte('\n')
		if m.PodUID != "" || a != nil {
			podUIDs = append(podUIDs, orNone(m.PodUID))
		}
	}
	for _, r := range t.Runs {
		if !t.IsDuty(r.Slots.First) {
			writeRun(&runs, r, a)
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(t.Notes)) {
		note := t.Notes[epoch]
		fmt.Fprintf(&notes, "%d %s", epoch, note.Cause)
		for _, kind := range slices.Sorted(maps.Keys(note.Versions)) {
			notes.WriteString(" " + kind + "=" + note.Versions[kind])
		}
		if note.Wait > 0 {
			fmt.Fprintf(&notes, " %s=%d", wordWait, note.Wait.Milliseconds())
		}
		notes.WriteByte('\n')
	}
	for _, e := range t.Expels {
		fmt.Fprintf(&expels, "%s %d\n", e.Pod, e.At)
	}
	data := map[string]string{
		fieldFormat: formatInt(t.Needs()), fieldUID: t.UID, fieldEpoch: strconv.FormatUint(t.Epoch, 10),
		fieldSlots: formatInt(t.Slots), fieldKey: t.Key.String(),
		fieldMembers: members.String(), fieldRuns: runs.String(), fieldNotes: notes.String(), fieldExpels: expels.String(),
		FieldPodUIDs: strings.Join(podUIDs, " "),
	}
	if len(t.Gone) > 0 {
		data[fieldGone] = encodeGone(t.Gone)
	}
	if len(t.Duties) > 0 {
		data[fieldDuties], data[fieldAble] = encodeDuties(t, a), encodeAble(t, a)
	}
	if orders := encodeOrders(t); orders != "" {
		data[fieldOrders] = orders
	}
	if len(t.Pins) > 0 {
		data[fieldPins] = encodePins(t)
	}
	if t.labeled() {
		data[fieldLabels] = encodeLabels(t, a)
	}
	if t.Older != 0 {
		data[fieldOlder] = formatInt(t.Older)
	}
	a.fields(data)
	return data
}

func writeRun(out *strings.Builder, r Run, a *abbreviations) {
	fmt.Fprintf(out, "%s %s", r.Slots, orNone(a.name(r.Owner)))
	if r.Owner != "" || r.Epoch != 0 {
		out.WriteString(" " + a.number(int64(r.Epoch)))
	}
	if r.Next != "" {
		out.WriteString(" -> " + a.name(r.Next))
	}
	if r.Ready {
		out.WriteString(" ready")
	}
	if r.Unsettled {
		out.WriteString(" unsettled")
	}
	out.WriteByte('\n')
}

func orNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

func orEmpty(s string) string {
	if s == None {
		return ""
	}
	return s
}

// Decode parses a table's text and checks that the table is Valid. It ignores unknown fields. The next write drops
// them, so owners must not depend on them.
func Decode(data map[string]string) (*Table, error) {
	text := data[fieldFormat]
	f, err := strconv.Atoi(text)
	switch {
	case text == "":
		return nil, errors.New("field format: missing; this is not a table, or it was edited")
	case err != nil || text != formatInt(f) || f < OldestFormat || f > Format:
		return nil, fmt.Errorf("field format: %q, but this program reads %d to %d: %w", text, OldestFormat, Format, ErrFormat)
	}
	d := decoder{data: data, format: f}
	t := &Table{
		UID:   data[fieldUID],
		Epoch: d.uint(fieldEpoch),
		Slots: slot.Count(d.uint(fieldSlots)),
		Notes: map[uint64]Note{},
		Older: d.parseOlder(),
	}
	if t.Key, err = slot.ParseKey(data[fieldKey]); err != nil {
		d.fail(fieldKey, 0, err)
	}
	a := d.abbreviations()
	podUIDs := strings.Fields(data[FieldPodUIDs])
	d.lines(fieldMembers, func(w []string) error {
		m, err := parseMember(w, a, podUIDs, len(t.Members))
		t.Members = append(t.Members, m)
		return err
	})
	d.lines(fieldRuns, func(w []string) error {
		r, err := parseRun(w, a)
		t.Runs = append(t.Runs, r)
		return err
	})
	d.lines(fieldNotes, func(w []string) error {
		epoch, note, err := parseNote(w)
		if _, twice := t.Notes[epoch]; twice && err == nil {
			return fmt.Errorf("a second note for epoch %d", epoch)
		}
		t.Notes[epoch] = note
		return err
	})
	if d.since(OrderFormat, fieldOrders) {
		d.lines(fieldOrders, func(w []string) error { return t.readOrder(w, f) })
	}
	if len(t.Members) == 0 || d.since(PlaceFormat, fieldPins) {
		d.lines(fieldPins, t.readPin)
	}
	if d.since(PlaceFormat, fieldLabels) {
		d.lines(fieldLabels, func(w []string) error { return t.readLabels(w, a) })
	}
	if d.since(DutyFormat, fieldDuties) {
		d.readDuties(t, a)
	}
	if f >= GoneFormat {
		d.lines(fieldGone, func(w []string) error {
			gone, err := parseGone(w)
			t.Gone = append(t.Gone, gone...)
			return err
		})
		slices.SortFunc(t.Gone, CompareGone)
	}
	d.lines(fieldExpels, func(w []string) error {
		e, err := parseExpel(w)
		t.Expels = append(t.Expels, e)
		return err
	})
	if d.err != nil {
		return nil, d.err
	}
	if err := t.Valid(); err != nil {
		return nil, err
	}
	return t, nil
}

// decoder keeps the first error, so that Decode reads as a list of fields.
type decoder struct {
	data   map[string]string
	format int
	err    error
}

// since reports whether tables of this format have the field, which was introduced with another format. It fails if an
// older table has the field.
func (d *decoder) since(format int, field string) bool {
	if _, has := d.data[field]; has && d.format < format {
		d.fail(field, 0, fmt.Errorf("a table of format %d has no %s; it was edited", d.format, field))
	}
	return d.format >= format
}

func (d *decoder) fail(field string, line int, err error) {
	switch {
	case d.err != nil:
	case line > 0:
		d.err = fmt.Errorf("field %s, line %d: %w", field, line, err)
	default:
		d.err = fmt.Errorf("field %s: %w", field, err)
	}
}

func (d *decoder) uint(field string) uint64 {
	n, err := strconv.ParseUint(d.data[field], 10, 63)
	if err != nil {
		d.fail(field, 0, fmt.Errorf("%q is not a number", d.data[field]))
	}
	return n
}

func (d *decoder) lines(field string, parse func(words []string) error) {
	n := 0
	for line := range strings.Lines(d.data[field]) {
		n++
		if err := parse(strings.Fields(line)); err != nil {
			d.fail(field, n, err)
			return
		}
	}
}

func parseMember(w []string, a *abbreviations, podUIDs []string, i int) (Member, error) {
	n := len(w)
	if n > 0 && w[n-1] == "leaving" {
		n--
	}
	if n == 3 && a != nil {
		if i >= len(podUIDs) {
			return Member{}, fmt.Errorf("%q: field %s ends before", w[0], FieldPodUIDs)
		}
		return a.parseShort(w, podUIDs[i])
	}
	if n != 8 {
		return Member{}, fmt.Errorf("%q: want ID pod podUID container build weight formats joined [leaving]",
			strings.Join(w, " "))
	}
	m := Member{ID: w[0], Pod: orEmpty(w[1]), PodUID: orEmpty(w[2]), Leaving: len(w) == 9}
	errClass := parseClass(&m, w[3:7])
	var errJoined error
	m.Joined, errJoined = strconv.ParseInt(w[7], 10, 64)
	return m, errors.Join(errClass, errJoined)
}

// parseClass parses the columns container, build, weight and formats.
func parseClass(m *Member, w []string) error {
	low, high, _ := strings.Cut(w[3], "-")
	m.Container, m.Build = orEmpty(w[0]), orEmpty(w[1])
	var errs [3]error
	m.Weight, errs[0] = strconv.Atoi(w[2])
	m.MinFormat, errs[1] = strconv.Atoi(low)
	m.MaxFormat, errs[2] = strconv.Atoi(high)
	return errors.Join(errs[:]...)
}

func parseRun(w []string, a *abbreviations) (Run, error) {
	bad := fmt.Errorf("%q: want slots owner [epoch [-> next [ready]] [unsettled]]", strings.Join(w, " "))
	if len(w) < 2 {
		return Run{}, bad
	}
	slots, err := slot.ParseRange(w[0])
	if err != nil {
		return Run{}, err
	}
	r := Run{Slots: slots}
	if r.Owner, err = a.expand(w[1]); err != nil {
		return Run{}, err
	}
	rest := w[2:]
	if len(rest) > 0 {
		epoch, err := a.parse(rest[0])
		if err != nil || epoch < 0 {
			return Run{}, bad
		}
		r.Epoch, rest = uint64(epoch), rest[1:]
	}
	if len(rest) > 1 && rest[0] == "->" {
		if r.Next, err = a.expand(rest[1]); err != nil {
			return Run{}, err
		}
		rest = rest[2:]
		if len(rest) > 0 && rest[0] == "ready" {
			r.Ready, rest = true, rest[1:]
		}
	}
	if len(rest) > 0 && rest[0] == "unsettled" {
		r.Unsettled, rest = true, rest[1:]
	}
	if len(rest) > 0 {
		return Run{}, bad
	}
	return r, nil
}

// wordWait introduces Note.Wait. Older releases take it for a kind and ignore it.
const wordWait = "wait"

func parseNote(w []string) (uint64, Note, error) {
	bad := fmt.Errorf("%q: want epoch cause [kind=version ...] [wait=milliseconds]", strings.Join(w, " "))
	if len(w) < 2 {
		return 0, Note{}, bad
	}
	epoch, err := strconv.ParseUint(w[0], 10, 63)
	if err != nil {
		return 0, Note{}, bad
	}
	var note Note
	for c := CauseAssigned; c <= CauseExpelled; c++ {
		if c.String() == w[1] {
			note.Cause = c
		}
	}
	for _, pair := range w[2:] {
		kind, version, ok := strings.Cut(pair, "=")
		if !ok {
			return 0, Note{}, bad
		}
		if kind == wordWait {
			ms, err := strconv.ParseInt(version, 10, 32)
			if err != nil || ms <= 0 {
				return 0, Note{}, bad
			}
			note.Wait = time.Duration(ms) * time.Millisecond
			continue
		}
		if note.Versions == nil {
			note.Versions = Versions{}
		}
		note.Versions[kind] = version
	}
	return epoch, note, nil
}

func parseExpel(w []string) (Expel, error) {
	if len(w) != 2 {
		return Expel{}, fmt.Errorf("%q: want pod unix-seconds", strings.Join(w, " "))
	}
	at, err := strconv.ParseInt(w[1], 10, 64)
	return Expel{Pod: w[0], At: at}, err
}
